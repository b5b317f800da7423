# title: one code path per shape and dtype
# kind: honest
# case: relu -> agrees
# case: relu_empty -> agrees
# case: relu_transposed -> agrees
import torch


def kernel(x):
    if x.numel() == 0:
        return torch.empty_like(x)
    if x.is_contiguous() and x.dtype is torch.float32:
        return torch.clamp(x, min=0)
    return torch.where(x < 0, torch.zeros_like(x), x)
