"""Finds the fastest of several backends on an operator, if its confidence interval lies above all others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class BackendSpeed(NamedTuple):
    """How fast one backend's kernel of an operator is, over all of its cases."""

    low: float
    """Lower end of the 95 % interval of the speedup."""
    ratio: float
    high: float
    cases: frozenset[str]
    """Keys of the cases that it was computed from."""


def fastest(speeds: Mapping[str, BackendSpeed | None]) -> str | None:
    """The backend whose interval lies above all others; None if intervals overlap or speeds cannot be compared.

    `speeds` has the backends whose every case agrees; None for one without a resolved time. Speedups over different
    cases are not compared.
    """
    known = {name: speed for name, speed in speeds.items() if speed is not None}
    if not known or len(known) != len(speeds) or len({speed.cases for speed in known.values()}) > 1:
        return None
    leader = max(known, key=lambda name: known[name].ratio)
    beaten = all(speed.high < known[leader].low for name, speed in known.items() if name != leader)
    return leader if beaten else None
