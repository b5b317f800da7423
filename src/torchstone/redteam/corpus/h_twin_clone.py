# title: the operator, called plainly
# kind: honest
# case: clone_timed -> agrees
import torch


def kernel(x):
    return torch.empty_like(x).copy_(x)
