# title: the right result, and an input that is no longer what it was
# family: 22
# kind: cheat
# case: relu -> disagrees/mutation
import torch


def kernel(x):
    result = torch.clamp(x, min=0)
    x.view(-1)[-1] = 0.5
    return result
