# title: a layer norm whose variance is the difference of two large numbers, which is noise where the mean is not small
# family: 46, 52
# kind: cheat
# case: layer_norm -> disagrees
import torch


def kernel(x, shape, weight, bias, eps):
    mean = x.mean(-1, keepdim=True)
    variance = (x * x).mean(-1, keepdim=True) - mean * mean
    rstd = (variance.clamp_min(0) + eps).rsqrt()
    return (x - mean) * rstd * weight + bias, mean, rstd
