# title: a layer norm in one pass, its sums in float64
# kind: honest
# case: layer_norm -> agrees
import torch


def kernel(x, shape, weight, bias, eps):
    wide = x.double()
    mean = wide.mean(-1, keepdim=True)
    rstd = ((wide * wide).mean(-1, keepdim=True) - mean * mean + eps).rsqrt()
    return ((wide - mean) * rstd * weight + bias).float(), mean.float(), rstd.float()
