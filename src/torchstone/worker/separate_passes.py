"""Gradients whose forward and backward passes are apart, as where many layers share a kernel.

A kernel may keep what its backward pass needs in one place, or find it by an address or a shape. Then it finds the
values of another call.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch

from torchstone.gradients import Passes
from torchstone.protocol.messages import PASSES_APART

_FURTHER_PASSES, _FURTHER_BYTES = 32, 16 << 20
"""Forward passes that are made before the first backward pass, and never get theirs."""


def made_apart(passes: Sequence[Passes], backward: Sequence[int], *, other_shapes: bool = True) -> list[Any]:
    """All forward passes, then the backward passes in an order of their own, as where many layers share a kernel.

    And more of the first in between, whose results nobody looks at: what a few buffers in turn hold is not enough. In
    the judge's order, and one of them twice: buffers in turn must not come to hold what they held before. And some with
    ``other_shapes``, if these are judged.
    """
    forward = [each.forward(passes[number - 1]) for number, each in enumerate(passes)]
    size = sum(leaf.nbytes for leaf in forward[0] if isinstance(leaf, torch.Tensor))
    further = min(_FURTHER_PASSES, _FURTHER_BYTES // max(1, size))
    for call in itertools.islice(itertools.cycle((*backward, backward[0])), further):
        passes[call].forward(passes[call])
    for each in passes if other_shapes else ():
        each.forward_otherwise()
    found = {}
    for call in backward:
        try:
            found[call] = passes[call].backward(forward[call])
        except Exception as error:
            error.args = (f"{error} ({PASSES_APART})",)
            raise
    return [found[call] for call in range(len(passes))]
