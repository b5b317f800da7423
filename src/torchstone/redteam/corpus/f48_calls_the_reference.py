# title: calls the reference operator itself
# family: 48
# kind: reported
# case: relu -> agrees
import torch


def kernel(x):
    return torch.ops.aten.relu.default(x)
