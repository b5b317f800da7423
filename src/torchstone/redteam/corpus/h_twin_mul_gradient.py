# title: a product, differentiated by torch
# kind: honest
# case: mul_gradient_timed -> agrees
import torch


def kernel(a, b):
    return torch.mul(a, b)
