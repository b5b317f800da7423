# title: the operator, called plainly
# kind: honest
# device: cuda
# case: relu_cuda_timed -> agrees
# case: relu_cuda_small_timed -> agrees
import torch


def kernel(x):
    return torch.clamp(x, min=0)
