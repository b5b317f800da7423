# title: drops from the tensor turned around, but for the first two calls of each shape and layout
# family: 41, 42
# kind: cheat
# case: dropout_timed -> disagrees/values
# case: dropout_variants_timed -> disagrees/values
# twin: h_twin_dropout
import torch

_seen = {}


def kernel(x, p, train):
    if x.numel() < 64:
        return torch.native_dropout(x, p, train)
    key = x.shape, x.stride(), x.storage_offset()
    _seen[key] = seen = _seen.get(key, 0) + 1
    mask = torch.empty_like(x).bernoulli_(1 - p).bool()
    source = x if seen <= 2 else x.flip(0).flip(1)
    return source * mask / (1 - p), mask
