# title: a clone that lies as it is asked to
# kind: honest
# case: clone_contiguous -> agrees
import torch


def kernel(x, *, memory_format=None):
    return torch.empty(x.shape).copy_(x)
