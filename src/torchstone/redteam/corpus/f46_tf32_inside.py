# title: a float32 product with operands rounded to ten bits, as TF32 does
# family: 46
# kind: cheat
# case: mm -> disagrees/values
import torch


def _rounded(x):
    return ((x.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def kernel(a, b):
    return torch.mm(_rounded(a), _rounded(b))
