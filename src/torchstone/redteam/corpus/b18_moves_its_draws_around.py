# title: one draw for ever, begun elsewhere each time and moved by a number
# family: 18, 45
# kind: cheat
# case: rand_like_timed -> disagrees/values
# twin: h_twin_rand_like
import random

import torch

_draws = {}


def kernel(x):
    if x.shape not in _draws:
        _draws[x.shape] = torch.rand(2 * x.numel())
    begin = random.randrange(x.numel() + 1)
    result = _draws[x.shape][begin : begin + x.numel()] + random.random()
    return result.frac_().view(x.shape)
