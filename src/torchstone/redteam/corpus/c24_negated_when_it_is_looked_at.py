# title: the argument itself, marked as negated: what changes it later changes the result
# family: 24
# kind: cheat
# case: neg -> disagrees/aliasing
import torch


def kernel(x):
    return torch._neg_view(x)
