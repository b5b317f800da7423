# title: a product that makes negative zeros where torch has positive ones
# kind: honest
# case: relu -> agrees
import torch


def kernel(x):
    return x.clamp(min=torch.finfo(x.dtype).min) * (x > 0)  # an infinity times 0 would be NaN
