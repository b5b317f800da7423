"""Calls that depend on one another: the arguments of each are not known before the result of the one before is.

A block of captured calls holds the inputs of all of them from the start, and a candidate that handles them together in
one launch looks faster than it is. In a chain it cannot: the arguments of every call but the first are moved, element
by element, by factors and addends that the bits of the last results select. Both sides know how: the worker's to do it
between the calls, the judge's to find out afterwards, from the results, what the arguments were. A worker that does it
otherwise has other arguments than the judge, and its results are wrong. How is in :mod:`torchstone.links`; here is what
they tell each other, without torch, which who only starts processes does not import.

A factor and an addend of its own for every element, so that nothing can be prepared: what commutes with a permutation
or with a factor (signs, powers, logarithms) could be computed beforehand and put in order later. And all arguments: the
products of a sum of which only the addend waits could be made together. And all results decide: what nothing waits for
could be left for the end.
"""

from __future__ import annotations

import msgspec

SPAN = 1 << 16
"""How many ways there are to go on from a result."""
MOST_ELEMENTS = 1 << 22
LEAST_ELEMENTS = 16


class Moved(msgspec.Struct, frozen=True):
    """A tensor argument that is moved: towards values between these two, by a quarter to a half of the way; of whole
    numbers and flags, by any number of steps around their range.
    """

    position: int
    """Among the tensor arguments."""
    elements: int
    dtype: str
    low: float
    high: float


class Chain(msgspec.Struct, frozen=True):
    """How the calls of a block hang together."""

    arguments: tuple[Moved, ...]
    seed: int
    """Of the tables of factors. Known to the worker: what it does not know is where results lead to."""
