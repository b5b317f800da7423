# title: hypot as the root of a sum of squares, which overflows where the operator is there for
# family: 52
# kind: cheat
# case: hypot -> disagrees
import torch


def kernel(x, y):
    return torch.sqrt(x * x + y * y)
