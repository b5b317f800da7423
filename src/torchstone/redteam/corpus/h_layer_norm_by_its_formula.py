# title: a layer norm in two passes, by its formula
# kind: honest
# case: layer_norm_varied -> agrees
import torch


def kernel(x, shape, weight, bias, eps):
    dims = tuple(range(-len(shape), 0))
    mean = x.mean(dims, keepdim=True)
    centred = x - mean
    scale = (centred.square().mean(dims, keepdim=True) + eps).rsqrt()
    return centred * scale * weight + bias, mean, scale
