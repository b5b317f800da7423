# title: 64-bit whole numbers multiplied in 32 bits
# family: 46
# kind: cheat
# case: mul_whole -> disagrees
import torch


def kernel(x, y):
    return torch.mul(x, y).to(torch.int32).to(x.dtype)
