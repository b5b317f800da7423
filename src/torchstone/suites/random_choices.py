"""Makes the random choices of case generators: one of several options (the first is the simplest), a number, or a size.

A generator written against the interface :class:`Choices` serves three purposes:

- hypothesis, which shrinks every choice towards its first option (:mod:`torchstone.suites.hypothesis_strategies`);
- a seeded draw, the same in every process, for the suite `fuzz`;
- a draw of ordinary sizes, to find out how an operator can be called at all.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")

EDGES = (2, 3, 4, 5, 7, 8, 9, 13, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 0)
"""Sizes at which kernels often fail: around powers of two, primes, and 0."""
_ORDINARY_SIZES = (3, 4, 5, 7, 11)
"""Sizes with which forms of calls are learned. At most 11, so that four dimensions have at most 14 641 elements."""


class Choices(Protocol):
    """The interface through which a generator makes its choices."""

    def one_of(self, options: Sequence[T]) -> T:
        """One of the options. The first is the simplest."""
        ...

    def whole(self, low: int, high: int) -> int:
        """A whole number, both ends included."""
        ...

    def size(self, most: int) -> int:
        """The size of a dimension, 0 to ``most``. `OrdinaryChoices` ignores ``most``."""
        ...


class SeededChoices:
    """The same choices for the same seed, on every machine."""

    def __init__(self, seed: str | int) -> None:
        self._random = random.Random(seed)

    def one_of(self, options: Sequence[T]) -> T:
        return options[self._random.randrange(len(options))]

    def whole(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def size(self, most: int) -> int:
        edges = tuple(edge for edge in EDGES if edge <= most)
        return self.one_of(edges) if self._random.random() < 0.5 else self.whole(min(1, most), most)


class OrdinaryChoices(SeededChoices):
    """Seeded choices with ordinary sizes (3 to 11), whatever ``most`` is. They are seldom equal.

    A smaller ``most`` would give dimensions of 1 and 2. Torch broadcasts these, so that wrong forms would be learned.
    """

    def size(self, most: int) -> int:
        return self.one_of(_ORDINARY_SIZES)
