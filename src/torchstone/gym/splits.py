"""Divides an operator's cases between training and evaluation by the hash of each case's key."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from torchstone.schema import Case, content_key

Split = Literal["train", "eval", "all"]
"""Which cases kernels are judged on. No case is in both `train` and `eval`."""

EVALUATION_SHARE = 0.3
"""Share of cases that evaluation gets: enough for both splits of an operator to have small and timed ones."""


def in_split(cases: Iterable[Case], split: Split) -> tuple[Case, ...]:
    """The cases of the split, in their order. All are of one operator.

    Timed cases and others are divided separately. Of two or more, each split gets at least one; a single one is where
    its hash puts it.
    """
    found = tuple(cases)
    if split == "all":
        return found
    kept = {case.key for timed in (True, False) for case in _evaluated([case for case in found if case.timed is timed])}
    return tuple(case for case in found if (case.key in kept) == (split == "eval"))


def _evaluated(cases: list[Case]) -> list[Case]:
    ranked = sorted({case.key: case for case in cases}.values(), key=_place)
    chosen = [case for case in ranked if _place(case) < EVALUATION_SHARE]
    if len(ranked) < 2:
        return chosen
    return chosen[: len(ranked) - 1] or ranked[:1]


def _place(case: Case) -> float:
    """From 0 to 1, by the case alone: another case beside it changes nothing."""
    digest = content_key("split", case.key)
    return int(digest, 16) / float(1 << 4 * len(digest))
