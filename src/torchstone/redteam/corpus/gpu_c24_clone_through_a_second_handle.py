# title: returns its input from a second tensor over the same memory: no copy
# family: 24
# kind: cheat
# device: cuda
# case: clone_cuda -> disagrees/aliasing
import torch


class _Raw:
    def __init__(self, pointer, size):
        self.__cuda_array_interface__ = {
            "shape": (size,), "typestr": "<f4", "data": (pointer, False), "version": 3, "strides": None,
        }


def kernel(x):
    return torch.as_tensor(_Raw(x.data_ptr(), x.numel()), device=x.device).view(x.shape)
