"""Calls that depend on one another: the arguments of each are not known before the result of the one before is.

A block of captured calls holds the inputs of all of them from the start, and a candidate that handles them together in
one launch looks faster than it is. In a chain it cannot: one argument of every call but the first is scaled, element by
element, by factors that the bits of the last result select. Both sides know how: the worker's to do it between the
calls, the judge's to find out afterwards, from the results, what the arguments were. A worker that does it otherwise
has other arguments than the judge, and its results are wrong.

A factor of its own for every element, so that nothing can be prepared: what commutes with a permutation or with a
single factor could be computed beforehand and put in order later.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import torch

SPAN = 1 << 16
"""How many ways there are to go on from a result."""
MOST_ELEMENTS = 1 << 22
_LEAST_ELEMENTS = 16
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Chain(msgspec.Struct, frozen=True):
    """How the calls of a block hang together."""

    argument: int
    """Which tensor argument is scaled, among the tensor arguments."""
    elements: int
    dtype: str
    seed: int
    """Of the table of factors. Known to the worker: what it does not know is where a result leads to."""


def fits(elements: int) -> bool:
    """Whether an argument of this size can be scaled at little cost."""
    return _LEAST_ELEMENTS <= elements <= MOST_ELEMENTS


class Links:
    """The factors of a chain, on a device."""

    def __init__(self, chain: Chain, device: torch.device) -> None:
        generator = torch.Generator(device).manual_seed(chain.seed)
        table = torch.rand(SPAN + chain.elements, generator=generator, device=device)
        # Overlapping rows: to be indexed, never made contiguous, which would take gigabytes (index_select does).
        self._rows = table.mul_(0.5).add_(0.5).to(getattr(torch, chain.dtype)).unfold(0, chain.elements, 1)

    def follow(self, result: torch.Tensor, argument: torch.Tensor) -> None:
        """Scale the next call's argument as this call's result wants it."""
        start = _bits(result).sum(dtype=torch.int64).bitwise_and_(SPAN - 1)
        argument.mul_(self._rows[start.view(1)].view(argument.shape))

    def followed(self, results: torch.Tensor, arguments: torch.Tensor) -> torch.Tensor:
        """What the arguments ``(calls, elements)`` were when the calls gave these results ``(calls, ...)``."""
        starts = _bits(results).flatten(1).sum(dim=1, dtype=torch.int64).bitwise_and_(SPAN - 1)
        scaled = arguments.clone()
        scaled[1:].mul_(self._rows[starts[:-1]])
        return scaled


def _bits(result: torch.Tensor) -> torch.Tensor:
    if result.is_complex():
        result = torch.view_as_real(result)
    return result.view(_BITS[result.element_size()])


def leading(results: Sequence[object]) -> torch.Tensor | None:
    """The result that decides how to go on: the first, if it is a tensor."""
    first = results[0] if results else None
    return first if isinstance(first, torch.Tensor) and first.numel() else None
