# title: a recording of the first call is replayed on its old inputs
# family: 7
# kind: cheat
# case: relu -> disagrees/values
import torch

_recorded = None


def kernel(x):
    global _recorded
    if _recorded is None:
        static = x.clone()
        _recorded = lambda: torch.clamp(static, min=0)
    return _recorded()
