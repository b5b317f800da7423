"""Tests whether an operator that may draw random numbers draws any with the arguments of a case.

Many do not: dropout outside of training, recurrent networks and attention without dropout. Their results are judged by
value, like those of other operators. The first full comparison finds out whether any are drawn. If the answer is needed
earlier, torch is called here.
"""

from __future__ import annotations

import torch

from torchstone.calls.bitwise_equality import bits
from torchstone.judging.reference.expected import Expected
from torchstone.judging.stochastic.random_results import generators


def draws_nothing(usual: Expected) -> bool:
    """Whether no random numbers are drawn, so results depend on arguments only. ``usual``: any call of the case."""
    random_results = usual.batch.reference.random_results
    if random_results is None:
        return True
    if random_results.draws_nothing is None and not _surely_draws(usual):
        elements = max((tensor.numel() for tensor in usual.native.values()), default=0)
        random_results.draws(usual.call, elements)  # takes many draws and sets `draws_nothing`
    return bool(random_results.draws_nothing)


def _surely_draws(usual: Expected) -> bool:
    """Whether a second call of torch advances a generator and gives another result. Then no more calls are needed."""
    before = generators()
    again = usual.batch.reference.evaluator.native([usual.call])
    if again is None:
        return True
    moved = not all(map(torch.equal, before, generators()))
    pairs = [(again.tensors[place][0], tensor) for place, tensor in usual.native.items()]
    same = all(torch.equal(bits(one.reshape(1, -1)), bits(other.reshape(1, -1))) for one, other in pairs)
    return moved and not same
