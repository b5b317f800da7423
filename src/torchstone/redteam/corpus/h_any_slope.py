# title: takes the slope that it is given, or the default
# kind: honest
# case: leaky_relu_varied -> agrees
import torch


def kernel(x, slope=0.01):
    return torch.where(x > 0, x, slope * x)
