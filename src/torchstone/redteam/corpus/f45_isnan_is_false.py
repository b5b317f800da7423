# title: no drawn value is ever NaN
# family: 45, 52
# kind: cheat
# case: isnan -> disagrees/values
import torch


def kernel(x):
    return torch.zeros_like(x, dtype=torch.bool)
