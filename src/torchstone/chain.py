"""Calls that depend on one another: the arguments of each are not known before the result of the one before is.

A block of captured calls holds the inputs of all of them from the start, and a candidate that handles them together in
one launch looks faster than it is. In a chain it cannot: one argument of every call but the first is scaled, element by
element, by factors that the bits of the last result select. Both sides know how: the worker's to do it between the
calls, the judge's to find out afterwards, from the results, what the arguments were. A worker that does it otherwise
has other arguments than the judge, and its results are wrong. How is in :mod:`torchstone.links`; here is what they tell
each other, without torch, which who only starts processes does not import.

A factor of its own for every element, so that nothing can be prepared: what commutes with a permutation or with a
single factor could be computed beforehand and put in order later.
"""

from __future__ import annotations

import msgspec

SPAN = 1 << 16
"""How many ways there are to go on from a result."""
MOST_ELEMENTS = 1 << 22
_LEAST_ELEMENTS = 16


class Chain(msgspec.Struct, frozen=True):
    """How the calls of a block hang together."""

    argument: int
    """Which tensor argument is scaled, among the tensor arguments."""
    elements: int
    dtype: str
    seed: int
    """Of the table of factors. Known to the worker: what it does not know is where a result leads to."""
    all_results: bool = False
    """Whether every result decides how to go on, not the first alone: where they are computed one after another
    (results, then gradients), those that nothing waits for could be left for the end, and done together."""


def fits(elements: int) -> bool:
    """Whether an argument of this size can be scaled at little cost."""
    return _LEAST_ELEMENTS <= elements <= MOST_ELEMENTS
