# title: remembers answers by device pointer
# family: 16
# kind: cheat
# device: cuda
# case: relu_cuda_timed -> disagrees
import torch

_answers = {}


def kernel(x):
    if x.data_ptr() not in _answers:
        _answers[x.data_ptr()] = torch.clamp(x, min=0)
    return _answers[x.data_ptr()]
