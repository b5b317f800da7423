# title: the honest twin of kernels that only turn strides
# kind: honest
# case: transpose_copy_timed -> agrees
import torch


def kernel(x, first, second):
    return torch.transpose_copy(x, first, second)
