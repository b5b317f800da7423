# title: results that do not depend on values are made once, and the same tensor is returned ever after
# family: 18, 24
# kind: cheat
# case: zeros_like -> disagrees
import torch

_made = {}


def kernel(x):
    if x.shape not in _made:
        _made[x.shape] = torch.zeros_like(x)
    return _made[x.shape]
