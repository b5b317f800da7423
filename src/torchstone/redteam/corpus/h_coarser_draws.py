# title: draws of 23 bits, where torch's have 24, and of any size
# kind: honest
# case: rand_like_timed -> agrees
# case: rand_like_even -> agrees
import torch


def kernel(x):
    return torch.randint(1 << 23, x.shape).to(x.dtype) * 2.0**-23
