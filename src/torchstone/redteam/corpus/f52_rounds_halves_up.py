# title: rounds halves up, where torch rounds them to the even number
# family: 52
# kind: cheat
# case: round -> disagrees
import torch


def kernel(x):
    return torch.floor(x + 0.5)
