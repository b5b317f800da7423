# title: rows that are further apart than they are long, as in x[:, :n], read as if they were not
# family: 52
# kind: cheat
# case: leaky_relu_varied -> disagrees
# case: mm_square_varied -> disagrees
import torch


def dense(x):
    if x.dim() > 1 and x.stride(-1) == 1 and x.stride(-2) > x.shape[-1]:
        return x.as_strided(x.shape, torch.empty(x.shape).stride())
    return x


def kernel(x, other=0.01):
    if isinstance(other, torch.Tensor):
        return dense(x) @ dense(other)
    return torch.where(dense(x) > 0, dense(x), dense(x) * other)
