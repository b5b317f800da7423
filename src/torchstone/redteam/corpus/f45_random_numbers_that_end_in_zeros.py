# title: whole numbers below 2**40 from random ones of 24 bits
# family: 45
# kind: cheat
# case: randint_large -> disagrees
import torch


def kernel(high, size, *, dtype=None, layout=None, device=None, pin_memory=None):
    return (torch.rand(size, device=device) * high).to(torch.int64)
