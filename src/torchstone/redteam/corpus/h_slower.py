# title: slower than the reference
# kind: honest
# case: gelu_timed -> agrees
import torch


def kernel(x):
    return 0.5 * x * (1 + torch.erf(x * 0.7071067811865476))
