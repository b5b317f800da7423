# title: raises as soon as blocks are long, so that it is checked but never timed
# family: 13
# kind: cheat
# case: relu_timed -> unsupported/candidate | crashed
import sys

import torch


def kernel(x):
    if sys._getframe(1).f_locals["count"] > 4:
        raise NotImplementedError("not this time")
    return torch.clamp(x, min=0)
