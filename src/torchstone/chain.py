"""Chained calls: the arguments of each call are known only after the result of the call before.

A block of captured calls (one CUDA graph) holds the inputs of all of them from the start. A candidate that computes
them together in one launch looks faster than it is. In a chain it cannot: the arguments of every call but the first
are moved, element by element, by factors and addends that the bits of the last results select.

The worker, the process that runs the kernel, does this between the calls. The judge, the trusted process, recomputes
the arguments afterwards, from the results. A worker that does it otherwise has other arguments, and its results are
wrong. :mod:`torchstone.chain_arithmetic` has the arithmetic; here are the data that both exchange, without torch.

- Every element has its own factor and addend. Otherwise operators that commute with a permutation or a factor (signs,
  powers, logarithms) could be computed beforehand.
- All arguments change. If only the addend of a sum of products changed, the products could be computed beforehand.
- All results select the next arguments. A result on which no call depends could be computed at the end.
"""

from __future__ import annotations

import msgspec

SPAN = 1 << 16
"""Rows of a table. The bits of a call's results select one of them."""
MOST_ELEMENTS = 1 << 22
"""Most elements of a tensor argument that a chain can change."""
LEAST_ELEMENTS = 16
"""Fewest elements that a chain must change, over all arguments together."""


class Moved(msgspec.Struct, frozen=True):
    """A tensor argument that a chain changes from call to call.

    Each floating-point element moves by a quarter to a half of the way towards a value between ``low`` and ``high``.
    An integer is shifted by a drawn number and wraps around within ``low`` to ``high`` (exclusive). A boolean is
    flipped or kept.
    """

    position: int
    """Index among the tensor arguments."""
    elements: int
    dtype: str
    low: float
    high: float


class Chain(msgspec.Struct, frozen=True):
    """How the arguments of the calls of a block depend on the results of the calls before them."""

    arguments: tuple[Moved, ...]
    seed: int
    """Seed of the tables of factors. The worker knows it; it does not know which entries results will select."""
