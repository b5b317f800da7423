# title: hypot by the larger of the two: another formula, as exact and as far-reaching
# family: 52
# kind: honest
# case: hypot -> agrees
import torch


def kernel(x, y):
    x, y = x.abs(), y.abs()
    large, small = torch.maximum(x, y), torch.minimum(x, y)
    ratio = torch.where(large == 0, large, small / large)
    return torch.where(torch.isinf(large), large, large * torch.sqrt(1 + ratio * ratio))
