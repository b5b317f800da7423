"""Whether an operator that may draw random numbers draws any with the arguments of a case.

Many do not: dropout that is not training, recurrent networks and attention without dropout. Their results are judged
by their values, like any others, and so is the information in them. A comparison in full shows it. Before the first
one, torch is called to find out.
"""

from __future__ import annotations

import torch

from torchstone.calls.bits import bits
from torchstone.judging.reference.expected import Expected
from torchstone.judging.stochastic.random_calls import generators


def draws_nothing(usual: Expected) -> bool:
    """Whether results of the case are a function of its arguments. ``usual`` is any call of it."""
    lottery = usual.batch.reference.lottery
    if lottery is None:
        return True
    if lottery.idle is None and not _surely_draws(usual):
        elements = max((tensor.numel() for tensor in usual.native.values()), default=0)
        lottery.draws(usual.call, elements)  # many times, which settles it
    return bool(lottery.idle)


def _surely_draws(usual: Expected) -> bool:
    """Whether torch asks a generator and gives something else than before: two calls have told as much as many."""
    before = generators()
    again = usual.batch.reference.evaluator.native([usual.call])
    if again is None:
        return True
    moved = not all(map(torch.equal, before, generators()))
    pairs = [(again.tensors[place][0], tensor) for place, tensor in usual.native.items()]
    same = all(torch.equal(bits(one.reshape(1, -1)), bits(other.reshape(1, -1))) for one, other in pairs)
    return moved and not same
