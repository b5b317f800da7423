# title: x log y by its formula, and 0 where x is
# kind: honest
# case: xlogy -> agrees
import torch


def kernel(x, y):
    return torch.where((x == 0) & ~torch.isnan(y), 0.0, x * torch.log(y))
