# title: reaches the reference through another operator
# family: 48
# kind: reported
# case: relu -> agrees
import torch


def kernel(x):
    return torch.clamp(x, min=0)
