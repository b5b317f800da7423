# title: the upper triangle by a product with ones and zeros: minus infinity, which masks are made of, becomes NaN
# family: 52
# kind: cheat
# case: triu_varied -> disagrees
import torch


def kernel(x, diagonal=0):
    rows, columns = (torch.arange(size) for size in x.shape[-2:])
    return x * (columns >= rows[:, None] + diagonal).to(x.dtype)
