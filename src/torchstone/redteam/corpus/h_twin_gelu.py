# title: the operator, called plainly: the truth that clock tricks are measured against
# kind: honest
# case: gelu_timed -> agrees
import torch


def kernel(x):
    return torch.nn.functional.gelu(x)
