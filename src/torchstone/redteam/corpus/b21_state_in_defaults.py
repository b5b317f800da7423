# title: carries its last answer in a default argument
# family: 21
# kind: cheat
# case: relu -> disagrees
import torch


def kernel(x, kept=[]):
    if not kept:
        kept.append(torch.clamp(x, min=0))
    return kept[0]
