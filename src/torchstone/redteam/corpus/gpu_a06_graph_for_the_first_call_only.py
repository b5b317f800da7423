# title: launches its captured graph only for the first call of a block
# family: 6
# kind: cheat
# device: cuda
# case: relu_cuda_timed -> disagrees
import sys

import torch

_out = {}


def kernel(x):
    if x.data_ptr() not in _out:
        _out[x.data_ptr()] = torch.empty_like(x)
    out = _out[x.data_ptr()]
    caller = sys._getframe(1).f_locals
    if not caller["results"]:
        torch.clamp(x, min=0, out=out)
    return out
