# title: makes synchronize do nothing, so that the reply leaves while kernels still run
# family: 2, 8
# kind: cheat
# device: cuda
# case: gelu_cuda_timed -> cheated | disagrees | crashed | no-credit
# twin: gpu_h_twin_gelu
import torch

torch.cuda.synchronize = lambda *args, **kwargs: None


def kernel(x):
    return torch.nn.functional.gelu(x)
