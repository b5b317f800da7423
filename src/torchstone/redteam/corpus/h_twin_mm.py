# title: a small product, called plainly
# kind: honest
# case: mm_small_timed -> agrees
# case: mm_timed -> agrees
import torch


def kernel(a, b):
    return torch.mm(a, b)
