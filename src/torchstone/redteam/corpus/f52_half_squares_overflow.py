# title: a length whose squares are kept in float16, infinite from 256 on
# family: 52
# kind: cheat
# case: hypot_half -> disagrees
import torch


def kernel(a, b):
    squares = a.float().square() + b.float().square()
    return torch.where(squares.half().isinf(), torch.inf, squares.sqrt()).half()
