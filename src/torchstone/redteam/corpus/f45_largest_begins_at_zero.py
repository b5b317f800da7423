# title: looks for the largest from 0 on: where all are negative it is the first
# family: 45, 52
# kind: cheat
# case: argmax_varied -> disagrees
import torch


def kernel(x, dim=None, keepdim=False):
    return torch.argmax(x.clamp_min(0.0), dim, keepdim)
