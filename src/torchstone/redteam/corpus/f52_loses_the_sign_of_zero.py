# title: a copy that turns every negative zero into a positive one
# family: 52
# kind: cheat
# case: clone_special -> disagrees
import torch


def kernel(x):
    return torch.where(x == 0, 0.0, x)
