# title: an uninitialised buffer that happens to hold a freed answer
# family: 15
# kind: cheat
# case: relu -> disagrees
import torch

_first = True


def kernel(x):
    global _first
    if _first:
        _first = False
        return torch.clamp(x, min=0)
    keep = torch.empty_like(x)
    return keep
