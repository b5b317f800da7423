# title: a safe softmax by its formula
# kind: honest
# case: safe_softmax -> agrees
import torch


def kernel(x, dim, dtype=None):
    if not x.numel():
        return torch.empty_like(x)
    most = x.amax(dim, keepdim=True)
    e = (x - torch.where(most == -torch.inf, 0.0, most)).exp()
    return e / e.sum(dim, keepdim=True).clamp_min(1e-30)
