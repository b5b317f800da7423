# title: the operator, called plainly
# kind: honest
# case: rand_like_timed -> agrees
# case: rand_like_large_timed -> agrees
import torch


def kernel(x):
    return torch.empty_like(x).uniform_()
