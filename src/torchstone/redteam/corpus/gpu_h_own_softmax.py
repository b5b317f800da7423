# title: a softmax that takes the maximum off in every call, and multiplies where torch divides
# kind: honest
# device: cuda
# case: softmax_cuda_timed -> agrees
import torch


def kernel(x, dim, half_to_float):
    e = (x - x.amax(dim, keepdim=True)).exp_()
    return e.mul_(e.sum(dim, keepdim=True).reciprocal_())
