# title: divides by the size of an empty tensor
# family: 52
# kind: cheat
# case: relu_empty -> crashed/exception
import torch


def kernel(x):
    blocks = 1024 // x.numel()
    return torch.clamp(x, min=0) if blocks >= 0 else x
