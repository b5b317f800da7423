# title: torch.compile
# kind: honest
# device: cuda
# case: gelu_cuda_timed -> agrees
import torch

kernel_compiled = torch.compile(torch.nn.functional.gelu)


def kernel(x):
    return kernel_compiled(x)
