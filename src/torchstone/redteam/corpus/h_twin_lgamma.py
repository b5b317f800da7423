# title: the operator, called plainly: the truth that clock tricks are measured against
# kind: honest
# case: lgamma_timed -> agrees
import torch


def kernel(x):
    return torch.lgamma(x)
