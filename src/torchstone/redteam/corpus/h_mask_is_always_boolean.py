# title: a dropout with a boolean mask also where there is nothing to drop
# kind: honest
# case: dropout_varied -> agrees
import torch


def kernel(x, p, train):
    if not train:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    mask = torch.rand(x.shape) >= p
    return x * mask * (1.0 / (1.0 - p)), mask
