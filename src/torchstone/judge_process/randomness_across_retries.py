"""Random numbers that repeat when a job is retried, so that a candidate gains nothing by crashing."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from torchstone import schema


class RepeatableRandomness:
    """The system's randomness, written down: a candidate whose worker was lost meets the same values and variants.

    Otherwise dying would be a way to ask for others. Nothing that is timed comes from here: what a candidate has met
    before it may know the answer to.
    """

    def __init__(self) -> None:
        self._drawn: list[int] = []
        self._next = 0
        self.variants: tuple[Sequence[schema.Case], Sequence[Sequence[schema.Case]]] | None = None
        """The hidden ones, once they were drawn: small ones, and ways to make each of the stated size."""
        self.keeps_results: bool | None = None
        """Whether results are kept and looked at again, once that was decided."""

    def draw(self) -> int:
        """63 bits that no candidate can foresee."""
        if self._next == len(self._drawn):
            self._drawn.append(secrets.randbits(63))
        self._next += 1
        return self._drawn[self._next - 1]

    def begin_again(self) -> None:
        """With the first of what was drawn."""
        self._next = 0
