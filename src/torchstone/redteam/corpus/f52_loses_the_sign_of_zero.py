# title: a copy that turns every negative zero into a positive one
# family: 52
# kind: cheat
# case: clone_special -> disagrees
# hole: copies are compared as numbers, and -0.0 == 0.0; arguments are compared bit for bit, results are not
import torch


def kernel(x):
    return torch.where(x == 0, 0.0, x)
