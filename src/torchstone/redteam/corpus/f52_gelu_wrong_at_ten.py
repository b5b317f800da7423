# title: a gelu by two approximations with a gap between them, from 6.6 to 15.9
# family: 52
# kind: cheat
# case: gelu_odd -> disagrees
import torch


def kernel(x, approximate="none"):
    a = x.abs()
    return torch.where((a > 6.6) & (a < 15.9), 0.0, torch.nn.functional.gelu(x, approximate=approximate))
