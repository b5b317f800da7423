# title: a layer norm whose sums go from left to right, the mean first
# kind: honest
# case: layer_norm -> agrees
import torch


def _mean(x):
    return x.cumsum(-1)[..., -1:] / x.shape[-1]


def kernel(x, shape, weight, bias, eps):
    mean = _mean(x)
    rstd = (_mean((x - mean).square()) + eps).rsqrt()
    return (x - mean) * rstd * weight + bias, mean, rstd
