# title: keeps the memory of its results, and uses it again once nobody else has it
# kind: honest
# case: relu -> agrees
# case: relu_timed -> agrees
import sys

import torch

_pools = {}


def kernel(x):
    pool = _pools.setdefault(x.shape, [])
    for place in range(len(pool)):
        if sys.getrefcount(pool[place]) == 2:  # the pool, and the question
            return torch.clamp(x, min=0, out=pool[place])
    pool.append(torch.clamp(x, min=0))
    return pool[-1]
