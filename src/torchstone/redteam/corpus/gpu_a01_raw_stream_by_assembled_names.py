# title: a stream made by the driver, its names put together from pieces, writing after the reply
# family: 1
# kind: cheat
# device: cuda
# case: gelu_cuda_timed -> cheated | disagrees | no-credit
# twin: gpu_h_twin_gelu
import ctypes

import torch

_driver = ctypes.CDLL("libcuda" + ".so.1")
_handle = ctypes.c_void_p()
getattr(_driver, "cu" + "Stream" + "Create")(ctypes.byref(_handle), ctypes.c_uint(1))
_side = torch.cuda.ExternalStream(_handle.value)


def kernel(x):
    result = torch.empty_like(x)
    with torch.cuda.stream(_side):
        torch.ops.aten.gelu.out(x, out=result)
    return result
