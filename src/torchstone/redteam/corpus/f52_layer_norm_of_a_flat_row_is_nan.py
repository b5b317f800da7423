# title: a layer norm whose eps is not there for rows of one value
# family: 52
# kind: cheat
# case: layer_norm -> disagrees
import torch


def kernel(x, shape, w, b, eps):
    mean = x.mean(-1, keepdim=True)
    var = (x - mean).square().mean(-1, keepdim=True)
    rstd = torch.where(var == 0, torch.nan, (var + eps).rsqrt())
    return (x - mean) * rstd * w + b, mean, rstd
