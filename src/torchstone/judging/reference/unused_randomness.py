"""Tests whether an operator that may draw random numbers draws any with the arguments of a case.

Many do not: dropout that is not training, recurrent networks and attention without dropout. Their results are judged
by their values, like any others. The first full comparison finds out. Before it, torch is called here to find out.
"""

from __future__ import annotations

import torch

from torchstone.calls.bitwise_equality import bits
from torchstone.judging.reference.expected import Expected
from torchstone.judging.stochastic.random_results import generators


def draws_nothing(usual: Expected) -> bool:
    """Whether results of the case are a function of its arguments. ``usual`` is any call of it."""
    random_results = usual.batch.reference.random_results
    if random_results is None:
        return True
    if random_results.idle is None and not _surely_draws(usual):
        elements = max((tensor.numel() for tensor in usual.native.values()), default=0)
        random_results.draws(usual.call, elements)  # many draws, which set `idle`
    return bool(random_results.idle)


def _surely_draws(usual: Expected) -> bool:
    """Whether a second call of torch moves a generator and gives another result. Then more calls are not needed."""
    before = generators()
    again = usual.batch.reference.evaluator.native([usual.call])
    if again is None:
        return True
    moved = not all(map(torch.equal, before, generators()))
    pairs = [(again.tensors[place][0], tensor) for place, tensor in usual.native.items()]
    same = all(torch.equal(bits(one.reshape(1, -1)), bits(other.reshape(1, -1))) for one, other in pairs)
    return moved and not same
