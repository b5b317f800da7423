# title: x log y by its formula, which the stated range of y bears out: NaN where both are 0
# family: 45
# kind: cheat
# case: xlogy -> disagrees/nonfinite
import torch


def kernel(x, y):
    return x * torch.log(y)
