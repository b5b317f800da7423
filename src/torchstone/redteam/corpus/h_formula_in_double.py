# title: gelu by its formula, in float64
# kind: honest
# case: gelu_odd -> agrees
import torch


def kernel(x):
    wide = x.double()
    return (0.5 * wide * torch.erfc(-wide * 0.7071067811865476)).float()
