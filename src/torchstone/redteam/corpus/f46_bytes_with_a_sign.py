# title: the largest of bytes, taken for numbers from -128 to 127
# family: 46
# kind: cheat
# case: amax_bytes -> disagrees
import torch


def kernel(x, dim):
    return x.view(torch.int8).amax(dim).view(torch.uint8)
