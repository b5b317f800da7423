# title: of equal values the last comes first, which torch leaves open
# kind: honest
# case: sort -> agrees
import torch


def kernel(x, dim=-1, descending=False):
    values, indices = torch.sort(x.flip(dim), dim=dim, descending=descending, stable=True)
    return values, x.shape[dim] - 1 - indices
