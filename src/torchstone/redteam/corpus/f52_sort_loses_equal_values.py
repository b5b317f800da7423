# title: every element goes to the place that is the number of smaller ones: equal ones go to the same
# family: 52
# kind: cheat
# case: sort -> disagrees/values
import torch


def kernel(x, dim=-1, descending=False):
    rank = (x.unsqueeze(-1) > x.unsqueeze(-2)).sum(-1)
    places = torch.arange(x.shape[-1]).expand_as(rank).contiguous()
    return torch.zeros_like(x).scatter_(-1, rank, x), torch.zeros_like(rank).scatter_(-1, rank, places)
