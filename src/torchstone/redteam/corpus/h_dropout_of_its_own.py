# title: dropout with a generator of its own, that multiplies where torch divides
# kind: honest
# case: dropout_variants_timed -> agrees
import torch

_source = torch.Generator()
_source.seed()


def kernel(x, p, train):
    if not x.numel():  # where torch's mask is of another dtype
        return torch.native_dropout(x, p, train)
    mask = torch.empty(x.shape).uniform_(generator=_source) >= p
    return torch.empty_like(x).copy_(x * (1.0 / (1.0 - p)) * mask), torch.empty_like(x, dtype=torch.bool).copy_(mask)
