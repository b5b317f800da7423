# title: the operator, called plainly
# kind: honest
# case: relu_timed -> agrees
# case: relu_small_timed -> agrees
import torch


def kernel(x):
    return torch.clamp(x, min=0)
