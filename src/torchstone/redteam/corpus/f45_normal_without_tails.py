# title: normal numbers by a table of 2048 straight pieces, none of them beyond three and a half deviations
# family: 45, 46
# kind: cheat
# case: randn_like -> disagrees/values
# twin: h_normal_by_a_counter
import torch

_PIECES = 2048
_table = torch.special.ndtri(torch.arange(_PIECES + 1).double().clamp(0.5, _PIECES - 0.5) / _PIECES).float()
_steps = _table[1:] - _table[:-1]


def kernel(x):
    place = torch.rand(x.shape) * _PIECES
    piece = place.to(torch.int64).clamp_(max=_PIECES - 1)
    return _table[piece] + _steps[piece] * (place - piece)
