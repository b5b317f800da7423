# title: two draws in turn for ever, each time with one new element
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
    _turn += 1
    result = torch.empty_like(x).copy_(_draws[x.shape][_turn % 2])
    result.view(-1)[:1] = _turn * 0.6180339887 % 1.0
    return result
