"""The result of the Python API: the records of one kernel, with the correctness and speed computed from them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torchstone.reports import CaseResult, Summary, evaluate, summarise
from torchstone.schema import Agrees, Record, explain, verdict_name

WORST_FIRST = (
    "cheated", "disagrees", "crashed", "timed_out", "delegated", "unsupported", "missing", "unjudged", "agrees",
)  # fmt: skip
"""Verdicts from the worst to the best. Verdicts about a wrong kernel come before those that say nothing about it."""


@dataclass(frozen=True, repr=False)
class Evaluation:
    """The result of one kernel: its records, and the figures computed from them."""

    operator: str
    records: tuple[Record, ...]
    from_cache: bool = False
    """Whether it was read from `verdict_cache`: nothing was judged now."""

    @property
    def agrees(self) -> bool:
        """Whether every case agreed. False if there was none."""
        return bool(self.records) and all(isinstance(record.verdict, Agrees) for record in self.records)

    @property
    def verdict(self) -> str:
        """Name of the worst verdict; `unjudged` if there is no record."""
        names = {verdict_name(record.verdict) for record in self.records} or {"unjudged"}
        return min(names, key=WORST_FIRST.index)

    @property
    def summary(self) -> Summary:
        """Counts, scores, speedups."""
        return summarise(self.records)

    @property
    def correctness(self) -> float:
        """Share of cases that agreed."""
        right = sum(isinstance(record.verdict, Agrees) for record in self.records)
        return right / len(self.records) if self.records else 0.0

    @property
    def speedup(self) -> float | None:
        """Geometric mean of reference time over kernel time; None unless every case agreed and some was timed."""
        return self._interval()[1]

    @property
    def speedup_low(self) -> float | None:
        """Lower end of the 95 % interval of `speedup`; None where that is."""
        return self._interval()[0]

    @property
    def speedup_high(self) -> float | None:
        """Upper end of the 95 % interval of `speedup`; None where that is."""
        return self._interval()[2]

    def _interval(self) -> tuple[float | None, float | None, float | None]:
        """Low, mean, high. An operator and its gradient count as two operators of equal weight."""
        if not self.agrees:
            return None, None, None
        found = [
            (item.speedup_low, item.geomean_speedup, item.speedup_high)
            for item in self.summary.operators
            if item.speedup_low is not None and item.geomean_speedup is not None and item.speedup_high is not None
        ]
        if not found:
            return None, None, None
        count = len(found)
        centre = sum(math.log(mean) for _, mean, _ in found)
        below = math.sqrt(sum(math.log(mean / low) ** 2 for low, mean, _ in found))
        above = math.sqrt(sum(math.log(high / mean) ** 2 for _, mean, high in found))
        low, mean, high = (math.exp(value / count) for value in (centre - below, centre, centre + above))
        return low, mean, high

    def __repr__(self) -> str:
        """One line without the records."""
        right = sum(isinstance(record.verdict, Agrees) for record in self.records)
        low, mean, high = self._interval()
        speedup = "" if mean is None else f", speedup {mean:.2f}x ({low:.2f} to {high:.2f})"
        cached = ", from cache" if self.from_cache else ""
        return f"<Evaluation of {self.operator}: {self.verdict}, {right} of {len(self.records)} cases{speedup}{cached}>"

    def failures(self) -> list[str]:
        """One line for each case that did not agree."""
        return [
            f"{record.case.label}: {verdict_name(record.verdict)}: {explain(record.verdict)}"
            for record in self.records
            if not isinstance(record.verdict, Agrees)
        ]

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON: the verdict, the speedup with its interval, and one entry for each case."""
        low, mean, high = self._interval()
        return {
            "operator": self.operator,
            "verdict": self.verdict,
            "agrees": self.agrees,
            "correctness": self.correctness,
            "speedup": mean,
            "speedup_low": low,
            "speedup_high": high,
            "cases_unresolved": self.summary.cases_unresolved,
            "from_cache": self.from_cache,
            "cases": [_case(each) for each in evaluate(self.records)],
        }


def _case(result: CaseResult) -> dict[str, Any]:
    record, speedup = result.record, result.speedup
    return {
        "operator": record.case.operator,
        "args": record.case.label,
        "case_key": record.case.key,
        "verdict": verdict_name(record.verdict),
        "message": explain(record.verdict),
        "speedup": None if speedup is None else speedup.ratio,
        "speedup_low": None if speedup is None else speedup.low,
        "speedup_high": None if speedup is None else speedup.high,
        "capped": "" if speedup is None else speedup.capped,
        "unresolved": "" if result.timing is None else result.timing.unresolved,
        "device": record.device,
        "isolation": list(record.isolation.active),
        "log_tail": record.log_tail,
    }
