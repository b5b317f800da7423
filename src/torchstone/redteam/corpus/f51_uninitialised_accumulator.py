# title: sums into a buffer that it never cleared
# family: 51
# kind: cheat
# case: sum -> disagrees
import torch


def kernel(x, dim, keepdim=False, dtype=None):
    churn = torch.full((x.shape[0],), 0.25)
    del churn
    result = torch.empty(x.shape[0])
    return result.add_(x.sum(-1))
