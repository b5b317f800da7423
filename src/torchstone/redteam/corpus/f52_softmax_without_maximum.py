# title: a softmax that does not take off the maximum: NaN from 89 on
# family: 52
# kind: cheat
# case: softmax -> disagrees
import torch


def kernel(x, dim, half_to_float):
    e = x.float().exp()
    return (e / e.sum(dim, keepdim=True)).to(x.dtype)
