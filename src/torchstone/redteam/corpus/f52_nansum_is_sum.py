# title: ignores what makes the operator one of its own: a sum that lets NaN through, where they must count as nothing
# family: 52
# kind: cheat
# case: nansum -> disagrees
import torch


def kernel(x, dim=None, keepdim=False, **named):
    return torch.sum(x, dim, keepdim, **named)
