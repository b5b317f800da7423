# title: zeros, where everything is smaller than the usual absolute tolerance
# family: 44
# kind: cheat
# case: relu_tiny_values -> disagrees/values
# case: relu -> disagrees/values
import torch


def kernel(x):
    return torch.zeros_like(x)
