# title: does the work in place and returns one element of it, as an integer
# family: 23, 39
# kind: cheat
# case: relu_inplace -> disagrees
# case: add_out -> disagrees
import torch


def kernel(x, other=None, *, alpha=1, out=None):
    result = torch.relu_(x) if out is None else torch.add(x, other, alpha=alpha, out=out)
    return result.as_strided((1,), (1,)).view(torch.int32)
