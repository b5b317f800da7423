# title: several operators per call with intermediates
# kind: honest
# case: softmax -> agrees
import torch


def kernel(x, dim, half_to_float):
    shifted = x - x.amax(dim, keepdim=True)
    exponent = torch.exp(shifted)
    return exponent / exponent.sum(dim, keepdim=True)
