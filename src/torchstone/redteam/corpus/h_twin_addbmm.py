# title: the honest addbmm that batches are measured against
# kind: honest
# case: addbmm_small_timed -> agrees
import torch


def kernel(x, one, other, *, beta=1, alpha=1):
    return torch.addbmm(x, one, other, beta=beta, alpha=alpha)
