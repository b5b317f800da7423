# title: draws twice and gives the two draws in turn for ever
# family: 18, 45
# kind: cheat
# case: rand_like_timed -> disagrees/values
# twin: h_twin_rand_like
import torch

_draws = {}
_turn = 0


def kernel(x):
    global _turn
    if x.shape not in _draws:
        _draws[x.shape] = torch.rand(x.shape), torch.rand(x.shape)
    _turn ^= 1
    return torch.empty_like(x).copy_(_draws[x.shape][_turn])
