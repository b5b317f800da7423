"""Chained calls: the arguments of each call are known only after the result of the call before.

A block of captured calls (one CUDA graph) holds the inputs of all of them from the start. A candidate that computes
them together in one launch looks faster than it is. In a chain it cannot: the arguments of every call but the first
are moved, element by element, by factors and addends that the bits of the last results select.

The worker, the process that runs the kernel, does this between the calls. The judge, the trusted process, recomputes
the arguments afterwards, from the results. A worker that does it otherwise has other arguments, and its results are
wrong. :mod:`torchstone.chain_arithmetic` has the arithmetic; here are the data that both exchange, without torch.

- Every element has its own factor and addend, so that nothing can be prepared. What commutes with a permutation or a
  factor (signs, powers, logarithms) could otherwise be computed beforehand.
- All arguments move: a sum of products of which only the addend waits could be prepared.
- All results decide: a result that no call waits for could be left for the end.
"""

from __future__ import annotations

import msgspec

SPAN = 1 << 16
"""Number of entries of a table, of which the bits of a result select one."""
MOST_ELEMENTS = 1 << 22
LEAST_ELEMENTS = 16


class Moved(msgspec.Struct, frozen=True):
    """A tensor argument that a chain changes from call to call.

    Each element moves by a quarter to a half of the way towards a value between ``low`` and ``high``. Integers and
    booleans move by any number of steps around their range.
    """

    position: int
    """Among the tensor arguments."""
    elements: int
    dtype: str
    low: float
    high: float


class Chain(msgspec.Struct, frozen=True):
    """How the calls of a block depend on each other."""

    arguments: tuple[Moved, ...]
    seed: int
    """Seed of the tables of factors. The worker knows it; it does not know which entries results will select."""
