"""Calls that depend on one another: the arguments of each are not known before the result of the one before is.

A block of captured calls holds the inputs of all of them from the start, and a candidate that handles them together in
one launch looks faster than it is. In a chain it cannot: the arguments of every call but the first are scaled, element
by element, by factors that the bits of the last results select. Both sides know how: the worker's to do it between the
calls, the judge's to find out afterwards, from the results, what the arguments were. A worker that does it otherwise
has other arguments than the judge, and its results are wrong. How is in :mod:`torchstone.links`; here is what they tell
each other, without torch, which who only starts processes does not import.

A factor of its own for every element, so that nothing can be prepared: what commutes with a permutation or with a
single factor could be computed beforehand and put in order later. And all arguments that can be: the products of a sum
of which only the addend waits could be made together. And all results decide: what nothing waits for could be left for
the end.
"""

from __future__ import annotations

import msgspec

SPAN = 1 << 16
"""How many ways there are to go on from a result."""
MOST_ELEMENTS = 1 << 22
_LEAST_ELEMENTS = 16


class Scaled(msgspec.Struct, frozen=True):
    """A tensor argument that is."""

    position: int
    """Among the tensor arguments."""
    elements: int
    dtype: str


class Chain(msgspec.Struct, frozen=True):
    """How the calls of a block hang together."""

    arguments: tuple[Scaled, ...]
    seed: int
    """Of the tables of factors. Known to the worker: what it does not know is where results lead to."""


def fits(elements: int) -> bool:
    """Whether an argument of this size can be scaled at little cost."""
    return _LEAST_ELEMENTS <= elements <= MOST_ELEMENTS
