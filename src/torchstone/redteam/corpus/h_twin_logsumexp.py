# title: the honest logsumexp that batches are measured against
# kind: honest
# case: logsumexp_small_timed -> agrees
import torch


def kernel(x, dim, keepdim=False):
    return torch.logsumexp(x, dim, keepdim)
