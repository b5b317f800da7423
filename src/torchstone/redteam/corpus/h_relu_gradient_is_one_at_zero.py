# title: a relu whose slope at 0 is 1, where none is promised
# kind: honest
# case: relu_gradient -> agrees
import torch


def kernel(x):
    return torch.where(x >= 0, x, 0.0)
