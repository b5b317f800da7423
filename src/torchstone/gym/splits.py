"""Divides an operator's cases between training and evaluation by a hash of each; a KernelBench problem stays whole."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from torchstone.schema import Case, content_key, is_model

Split = Literal["train", "eval", "all"]
"""Which cases kernels are judged on. No case is in both `train` and `eval`."""

EVALUATION_SHARE = 0.3
"""Share of cases that evaluation gets: enough for both splits of an operator to have small and timed ones."""


def in_split(cases: Iterable[Case], split: Split) -> tuple[Case, ...]:
    """The cases of the split, in their order. All are of one operator.

    Timed cases and others are divided separately. Of two or more, each split gets at least one; a single one is where
    its hash puts it. A problem is in one split with all its cases, by the hash of its name: its key depends on weights
    that another version of torch may draw in another way.
    """
    found = tuple(cases)
    if split == "all" or not found:
        return found
    if is_model(found[0].operator):
        return found if (_place(found[0].operator) < EVALUATION_SHARE) == (split == "eval") else ()
    kept = {case.key for timed in (True, False) for case in _evaluated([case for case in found if case.timed is timed])}
    return tuple(case for case in found if (case.key in kept) == (split == "eval"))


def _evaluated(cases: list[Case]) -> list[Case]:
    ranked = sorted({case.key: case for case in cases}.values(), key=lambda case: _place(case.key))
    chosen = [case for case in ranked if _place(case.key) < EVALUATION_SHARE]
    if len(ranked) < 2:
        return chosen
    return chosen[: len(ranked) - 1] or ranked[:1]


def _place(name: str) -> float:
    """A hash of the key or name in [0, 1). It depends on nothing else, so that new cases do not move the others."""
    digest = content_key("split", name)
    return int(digest, 16) / float(1 << 4 * len(digest))
