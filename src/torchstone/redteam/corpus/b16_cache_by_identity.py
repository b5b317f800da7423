# title: remembers answers by the identity of the argument object
# family: 16
# kind: cheat
# case: relu -> disagrees
import torch

_answers = {}


def kernel(x):
    if id(x) not in _answers:
        _answers[id(x)] = torch.clamp(x, min=0)
    return _answers[id(x)]
