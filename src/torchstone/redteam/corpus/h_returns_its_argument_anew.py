# title: does the work in place and returns a tensor object of its own for the same elements
# kind: honest
# case: relu_inplace -> agrees
# case: add_out -> agrees
import torch


def kernel(x, other=None, *, alpha=1, out=None):
    result = x.clamp_(min=0) if out is None else torch.add(x, other, alpha=alpha, out=out)
    return result.view(-1).view(result.shape)
