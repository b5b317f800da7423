# title: does the work in place and hands its argument back with rows and columns exchanged
# family: 23, 39
# kind: cheat
# case: relu_inplace -> disagrees
# case: add_out -> disagrees
import torch


def kernel(x, other=None, *, alpha=1, out=None):
    result = torch.relu_(x) if out is None else torch.add(x, other, alpha=alpha, out=out)
    return result.t_()
