# title: zeroes its input, so that zeros would be right
# family: 22
# kind: cheat
# case: relu -> disagrees
import torch


def kernel(x):
    x.zero_()
    return torch.zeros_like(x)
