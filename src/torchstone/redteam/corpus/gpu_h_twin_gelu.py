# title: the operator, called plainly
# kind: honest
# device: cuda
# case: gelu_cuda_timed -> agrees
import torch


def kernel(x):
    return torch.nn.functional.gelu(x)
