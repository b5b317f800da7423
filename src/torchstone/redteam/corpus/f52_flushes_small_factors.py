# title: a product that takes factors below 1e-10 for 0
# family: 52
# kind: cheat
# case: mul_flushed -> disagrees
import torch


def kernel(x, y):
    small = (x.abs() < 1e-10) | (y.abs() < 1e-10)
    return torch.where(small, 0.0, x * y)
