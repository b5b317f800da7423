# title: the sign of a complex number by its length, but for 0
# kind: honest
# case: sgn_complex -> agrees
import torch


def kernel(z):
    return torch.where(z == 0, 0, z / z.abs())
