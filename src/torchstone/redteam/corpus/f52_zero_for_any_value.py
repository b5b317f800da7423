# title: fills with zero, whatever the value is
# family: 52
# kind: cheat
# case: masked_fill_zero_varied -> disagrees/values
import torch


def kernel(x, mask, value):
    return torch.where(mask, torch.zeros((), dtype=x.dtype), x)
