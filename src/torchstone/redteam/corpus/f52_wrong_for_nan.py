# title: turns NaN into zero
# family: 52
# kind: cheat
# case: relu_special -> disagrees
import torch


def kernel(x):
    return torch.where(x > 0, x, torch.zeros_like(x))
