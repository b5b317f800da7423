"""Compares two runs over the same benchmark pairs: which got slower or faster, and which fail now.

A later run may find the whole machine slower. So a pair counts as slower only under two conditions. Its
optimized side takes longer, and its speedup over the baseline of the same run is lower, both by whole intervals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Literal

import msgspec

from torchstone.harness.report import PairsReport
from torchstone.harness.results import BenchmarkResult, PairRecord, TimingStats
from torchstone.harness.summary import is_successful
from torchstone.measuring import speedup_of_pairs
from torchstone.reports.safe_text import natural
from torchstone.schema import difference

Change = Literal[
    "slower", "faster", "same", "undecided", "both sides slower", "both sides faster", "broke", "mended", "failed both"
]
"""From the first run to the second. `broke`: succeeded before, fails now. `both sides …`: the machine, or a library."""

_BLOCKS = 10
"""Number of blocks into which samples are divided if they were taken all at once."""


class Estimate(msgspec.Struct, frozen=True):
    """A ratio with its 95 % interval."""

    ratio: float
    low: float
    high: float

    def over(self, other: Estimate) -> Estimate:
        """This ratio divided by another. The errors are independent, so the log widths add in quadrature."""
        ratio = math.log(self.ratio) - math.log(other.ratio)
        below = math.hypot(math.log(self.ratio / self.low), math.log(other.high / other.ratio))
        above = math.hypot(math.log(self.high / self.ratio), math.log(other.ratio / other.low))
        return Estimate(math.exp(ratio), math.exp(ratio - below), math.exp(ratio + above))

    def is_above(self, limit: float) -> bool:
        """Whether the whole interval is above the limit."""
        return self.low > limit

    def is_below(self, limit: float) -> bool:
        """Whether the whole interval is below the limit."""
        return self.high < limit


class PairChange(msgspec.Struct, frozen=True, kw_only=True):
    """One pair that is in both runs."""

    name: str
    change: Change
    before_ms: float | None
    """Median of the optimized side."""
    after_ms: float | None
    time_ratio: Estimate | None
    """Optimized time of the second run over that of the first. None: not measured in both, or too few samples."""
    before_speedup: float | None
    after_speedup: float | None
    speedup_ratio: Estimate | None
    """Speedup of the second run over that of the first."""
    files_changed: bool
    """Whether the content of a file of the pair changed."""


class RunComparison(msgspec.Struct, frozen=True, kw_only=True):
    """What changed between two runs."""

    before: str
    """Run id."""
    after: str
    threshold_pct: float
    pairs: tuple[PairChange, ...]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]
    manifest_difference: dict[str, tuple[Any, Any]]
    """Dotted field -> (before, after)."""

    @property
    def worse(self) -> tuple[PairChange, ...]:
        """The pairs that got slower beyond the threshold, or that fail now."""
        return tuple(pair for pair in self.pairs if pair.change in ("slower", "broke"))


def compare_runs(before: PairsReport, after: PairsReport, threshold_pct: float = 5.0) -> RunComparison:
    """Compare every pair of which both runs have a record, by name."""
    old = {record.name: record for record in before.pairs}
    new = {record.name: record for record in after.pairs}
    return RunComparison(
        before=before.run_id,
        after=after.run_id,
        threshold_pct=threshold_pct,
        pairs=tuple(_change(old[name], new[name], threshold_pct) for name in _ordered(old.keys() & new.keys())),
        only_before=tuple(_ordered(old.keys() - new.keys())),
        only_after=tuple(_ordered(new.keys() - old.keys())),
        manifest_difference=difference(before.manifest, after.manifest),
    )


def speedup_estimate(record: PairRecord) -> Estimate | None:
    """The speedup of a successful pair with its interval."""
    found = record.comparison
    if not is_successful(record) or not found.speedup or not found.speedup_low or not found.speedup_high:
        return None
    return Estimate(found.speedup, found.speedup_low, found.speedup_high)


def time_estimate(timing: TimingStats) -> Estimate | None:
    """Time per call in ms with its interval, from the medians of its blocks. None: fewer than three blocks."""
    medians = [_median(block) for block in _blocks(timing)]
    found = speedup_of_pairs([1.0] * len(medians), medians) if medians else None
    return None if found is None else Estimate(found.ratio, found.low, found.high)


def _blocks(timing: TimingStats) -> list[Sequence[float]]:
    raw = timing.raw_times_ms
    sizes = timing.block_sizes or _even(len(raw))
    ends = accumulate(sizes)
    return [raw[end - size : end] for size, end in zip(sizes, ends, strict=True) if size and end <= len(raw)]


def _even(count: int) -> tuple[int, ...]:
    parts = min(_BLOCKS, count)
    return tuple(count // parts + (number < count % parts) for number in range(parts)) if parts else ()


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def _change(before: PairRecord, after: PairRecord, threshold_pct: float) -> PairChange:
    old, new = before.comparison, after.comparison
    time_ratio = _ratio(_time(new.optimized), _time(old.optimized))
    baseline_ratio = _ratio(_time(new.baseline), _time(old.baseline))
    speedup_ratio = _ratio(speedup_estimate(after), speedup_estimate(before))
    change = _failure_change(before, after) or _time_change(
        time_ratio, baseline_ratio, speedup_ratio, 1 + threshold_pct / 100
    )
    return PairChange(
        name=after.name,
        change=change,
        before_ms=_median_ms(old.optimized),
        after_ms=_median_ms(new.optimized),
        time_ratio=time_ratio,
        before_speedup=old.speedup if is_successful(before) else None,
        after_speedup=new.speedup if is_successful(after) else None,
        speedup_ratio=speedup_ratio,
        files_changed=before.key != after.key,
    )


def _failure_change(before: PairRecord, after: PairRecord) -> Change | None:
    """The change if a run failed the pair. None: neither did, or a pair was skipped; then the times decide."""
    failed = (before.status == "failed", after.status == "failed")
    if failed == (True, True):
        return "failed both"
    if failed == (False, True) and is_successful(before):
        return "broke"
    if failed == (True, False) and is_successful(after):
        return "mended"
    return None


def _time_change(time: Estimate | None, baseline: Estimate | None, speedup: Estimate | None, limit: float) -> Change:
    """The change by the intervals of the times. `limit` is 1.05 for a threshold of 5 %."""
    if time is None or baseline is None or speedup is None:
        return "undecided"
    if time.is_above(limit):
        return "slower" if speedup.is_below(1 / limit) else "both sides slower" if baseline.is_above(1) else "undecided"
    if time.is_below(1 / limit):
        return "faster" if speedup.is_above(limit) else "both sides faster" if baseline.is_below(1) else "undecided"
    return "same" if time.low >= 1 / limit and time.high <= limit else "undecided"


def _time(side: BenchmarkResult) -> Estimate | None:
    return None if side.timing is None or not side.succeeded else time_estimate(side.timing)


def _median_ms(side: BenchmarkResult) -> float | None:
    return None if side.timing is None else side.timing.median_ms


def _ratio(after: Estimate | None, before: Estimate | None) -> Estimate | None:
    return None if after is None or before is None else after.over(before)


def _ordered(names: set[str]) -> list[str]:
    return sorted(names, key=natural)
