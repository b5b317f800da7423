"""Reads figures that a benchmark reports: times to first token (TTFT), per output token (TPOT), named numbers."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from typing import Any

LISTS = ("ttft_times_ms", "tpot_times_ms")
_MAX_TIMES = 100_000
"""Most times kept of each list. A benchmark may report every token of every call."""


class ReportedMetrics:
    """Collects the figures that a benchmark reports during its timed calls."""

    def __init__(self) -> None:
        self.ttft_times_ms: list[float] = []
        self.tpot_times_ms: list[float] = []
        self.notes: list[str] = []
        self._sums: dict[str, tuple[float, int]] = {}
        self._from_getter: dict[str, float] = {}

    def add(self, returned: Any) -> None:
        """Collect figures from the value that one call returned. Only dicts are read."""
        if not isinstance(returned, Mapping):
            return
        for name, value in returned.items():
            if name in LISTS:
                self._extend(getattr(self, str(name)), value)
            elif isinstance(name, str) and (number := _number(value)) is not None:
                total, count = self._sums.get(name, (0.0, 0))
                self._sums[name] = total + number, count + 1

    def ask(self, benchmark: Any) -> None:
        """Collect the figures of `get_custom_metrics()`. Called after the last call."""
        getter = getattr(benchmark, "get_custom_metrics", None)
        if not callable(getter):
            return
        try:
            found = getter()
        except Exception as error:  # noqa: BLE001 - metrics are an extra: the times are good without them
            self.notes.append(f"get_custom_metrics raised {type(error).__name__}: {error}")
            return
        if isinstance(found, Mapping):
            self._from_getter = {
                str(name): number for name, value in found.items() if (number := _number(value)) is not None
            }

    def custom_metrics(self) -> dict[str, float]:
        """Mean over calls of each returned number. Figures of `get_custom_metrics()` override them."""
        return {**{name: total / count for name, (total, count) in self._sums.items()}, **self._from_getter}

    def _extend(self, times: list[float], value: Any) -> None:
        values = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
        found = [number for item in values if (number := _number(item)) is not None]
        times.extend(found[: max(0, _MAX_TIMES - len(times))])


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return None
    number = float(value)
    return number if math.isfinite(number) else None
