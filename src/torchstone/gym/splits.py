"""Divides an operator's cases between training and evaluation by a hash of each; a KernelBench problem stays whole."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from torchstone.schema import Case, content_key, is_model

Split = Literal["train", "eval", "all"]
"""Which cases kernels are judged on. No case is in both `train` and `eval`."""

EVALUATION_SHARE = 0.3
"""Share of the cases in the split `eval`: enough for both splits of an operator to have small and timed cases."""


def in_split(cases: Iterable[Case], split: Split) -> tuple[Case, ...]:
    """The cases of the split, in their order. All are of one operator.

    Timed cases and others are divided separately. Of two or more, each split gets at least one. A single case goes to
    the split that its hash selects. A problem file stays whole: the hash of its name selects the split. The keys of its
    cases depend on weights that another version of torch may draw differently.
    """
    found = tuple(cases)
    if split == "all" or not found:
        return found
    if is_model(found[0].operator):
        return found if (_hash_fraction(found[0].operator) < EVALUATION_SHARE) == (split == "eval") else ()
    kept = {
        case.key
        for timed in (True, False)
        for case in _evaluation_cases([case for case in found if case.timed is timed])
    }
    return tuple(case for case in found if (case.key in kept) == (split == "eval"))


def _evaluation_cases(cases: list[Case]) -> list[Case]:
    by_hash = sorted({case.key: case for case in cases}.values(), key=lambda case: _hash_fraction(case.key))
    chosen = [case for case in by_hash if _hash_fraction(case.key) < EVALUATION_SHARE]
    if len(by_hash) < 2:
        return chosen
    return chosen[: len(by_hash) - 1] or by_hash[:1]


def _hash_fraction(name: str) -> float:
    """A hash of the key or name in [0, 1). It depends on nothing else: new cases do not move other cases."""
    digest = content_key("split", name)
    return int(digest, 16) / float(1 << 4 * len(digest))
