# title: slower than the reference
# kind: honest
# case: lgamma_timed -> agrees
import torch


def kernel(x):
    return torch.lgamma(x.clone()) + torch.zeros_like(x)
