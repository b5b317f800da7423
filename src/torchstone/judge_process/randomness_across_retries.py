"""Random numbers that repeat when a job is retried, so that a candidate gains nothing by crashing."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from torchstone import schema


class RepeatableRandomness:
    """System randomness that is remembered, so that a retry of a job has the same values and variants.

    Otherwise a candidate could get others by crashing. Timed values do not come from here: in a retry, a candidate may
    know the results of values that it has had before.
    """

    def __init__(self) -> None:
        self._drawn: list[int] = []
        self._next = 0
        self.variants: tuple[Sequence[schema.Case], Sequence[Sequence[schema.Case]]] | None = None
        """Hidden variants, once chosen: small ones, and for each variant of the stated size its alternatives."""
        self.keeps_results: bool | None = None
        """Whether the worker keeps results of earlier blocks; None: not decided."""

    def draw(self) -> int:
        """63 random bits: new ones, or in a retry those of the first attempt."""
        if self._next == len(self._drawn):
            self._drawn.append(secrets.randbits(63))
        self._next += 1
        return self._drawn[self._next - 1]

    def begin_again(self) -> None:
        """Repeat the numbers from the first one: the job is retried."""
        self._next = 0
