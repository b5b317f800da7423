# title: a logarithm by another one
# family: 52
# kind: honest
# case: log -> agrees
import math

import torch


def kernel(x):
    return torch.log2(x) * math.log(2.0)
