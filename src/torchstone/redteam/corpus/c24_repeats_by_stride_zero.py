# title: returns one copy of its input, repeated by a stride of zero: all rows of the result are the same memory
# family: 24
# kind: cheat
# case: repeat -> disagrees
# case: zeros_like -> disagrees
import torch


def kernel(x, sizes=None, **kwargs):
    if sizes is None:
        return torch.zeros(()).expand(x.shape)
    return x.clone().expand(sizes[0] * x.shape[0], x.shape[1])
