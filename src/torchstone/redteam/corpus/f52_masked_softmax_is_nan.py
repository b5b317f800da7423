# title: a safe softmax that is none: NaN for rows that are masked altogether
# family: 52
# kind: cheat
# case: safe_softmax -> disagrees
import torch


def kernel(x, dim, dtype=None):
    return torch.softmax(x, dim, dtype=dtype)
