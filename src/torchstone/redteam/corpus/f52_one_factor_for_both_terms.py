# title: one factor for both terms, right as long as they are the same
# family: 52
# kind: cheat
# case: addmm_varied -> disagrees/values
import torch


def kernel(c, a, b, *, beta=1, alpha=1):
    return (c + a @ b) * alpha
