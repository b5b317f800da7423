"""Summarizes the cases of one operator: counts, correctness, speedup and errors."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import msgspec

from torchstone.measuring import NOISE_BAND, Speedup
from torchstone.reports.case_results import CaseResult, counts_of, mixes_types
from torchstone.schema import Agrees, ErrorStatistics, Missing, OverBound, Unsupported, Verdict


class OperatorSummary(msgspec.Struct, frozen=True):
    """Summary of the cases of one operator in one backend."""

    operator: str
    cases: int
    """Cases with a record."""
    counts: dict[str, int]
    """Cases per verdict; verdicts without a case are left out."""
    excused: int
    """Cases that the reference or the device does not support: they do not test the kernel."""
    correctness: float | None
    """Agreeing cases divided by all cases that are not excused; None if all are excused."""
    right: bool
    """Whether every case that is not excused agrees, and no planned case lacks a record."""
    missing: bool
    """Whether the backend has no kernel for the operator."""
    timed_cases: int
    """Timed cases that were measured, or that failed before they could be measured."""
    measured_cases: int
    resolved_cases: int
    """Measured cases that have a speedup. The others are unresolved and are in no mean."""
    geomean_speedup: float | None
    """Geometric mean over the resolved cases; None if there are none."""
    speedup_low: float | None
    """Lower end of its 95 % interval, computed from the cases' intervals, which are taken as independent."""
    speedup_high: float | None
    average_speedup: float | None
    candidate_ns: float | None
    """Geometric mean of the resolved cases' times per call."""
    reference_ns: float | None
    max_abs_error: float | None
    max_rel_error: float | None
    worst_over_bound: OverBound | None
    """Largest error divided by its bound. A case above 1, infinity included, does not agree."""
    of_limit_percent: float | None = None
    """Geometric mean over the resolved cases: the least time that the device allows, divided by the candidate's time.
    It is not cut at 100."""
    reference_of_limit_percent: float | None = None
    bounds: dict[str, int] = {}
    """What sets the device's limit (memory, compute, latency) -> number of cases."""
    over_limit_cases: int = 0
    """Cases in which the candidate is faster than the limit: work counted too high, or limits measured too low."""
    backend: str = ""
    """Name of the backend that the kernels come from."""
    not_judged: int = 0
    """Planned cases without a record. An operator with such cases is not right, but not wrong for that alone."""
    capped: tuple[str, ...] = ()
    """Why speedups are reported as smaller than the timed blocks show; one text for each such case."""
    same_within: float = NOISE_BAND
    """Relative difference that counts as `same`: the largest of the cases'."""
    best: bool = False
    """Whether the operator is right, and its interval lies above those of all other backends that are right."""

    @property
    def open(self) -> bool:
        """Whether no case failed, but some were not judged."""
        held = self.counts.get("agrees", 0) + self.counts.get("unjudged", 0) + self.excused
        return self.not_judged > 0 and held == self.cases


def operator_summary(name: str, backend: str, results: Sequence[CaseResult], not_judged: int) -> OperatorSummary:
    """The summary of an operator in one backend; ``not_judged``: its planned cases without a record."""
    agreeing = sum(isinstance(item.record.verdict, Agrees) for item in results)
    excused = sum(_is_excused(item.record.verdict) for item in results)
    judgeable = len(results) - excused
    # Speeds on devices of different types have no common average.
    mixed = mixes_types(results)
    resolved = [item.timing for item in results if item.timing is not None and item.timing.resolved and not mixed]
    ratios = [item.speedup for item in resolved if item.speedup is not None]
    low, high = _geomean_interval(ratios)
    attained = [item.attainment for item in resolved if item.attainment is not None]
    return OperatorSummary(
        operator=name,
        cases=len(results),
        counts=counts_of(results),
        excused=excused,
        correctness=agreeing / judgeable if judgeable else None,
        right=0 < judgeable == agreeing and not not_judged,
        missing=bool(results) and all(isinstance(item.record.verdict, Missing) for item in results),
        timed_cases=sum(_counts_as_timed(item) for item in results),
        measured_cases=sum(item.timing is not None for item in results),
        resolved_cases=len(resolved),
        geomean_speedup=geomean([item.ratio for item in ratios]),
        speedup_low=low,
        speedup_high=high,
        average_speedup=sum(item.ratio for item in ratios) / len(ratios) if ratios else None,
        candidate_ns=geomean([item.candidate_ns for item in resolved]),
        reference_ns=geomean([item.reference_ns for item in resolved]),
        max_abs_error=_largest(results, lambda errors: errors.max_abs_error),
        max_rel_error=_largest(results, lambda errors: errors.max_rel_error),
        worst_over_bound=_worst_over_bound(results),
        of_limit_percent=geomean([item.candidate_percent for item in attained]),
        reference_of_limit_percent=geomean([item.reference_percent for item in attained]),
        bounds=dict(sorted(Counter(item.bound for item in attained).items())),
        over_limit_cases=sum(item.over_limit for item in attained),
        capped=tuple(item.capped for item in ratios if item.capped),
        same_within=max((item.same_within for item in ratios), default=NOISE_BAND),
        backend=backend,
        not_judged=not_judged,
    )


def _is_excused(verdict: Verdict) -> bool:
    return isinstance(verdict, Unsupported) and verdict.by != "candidate"


def _counts_as_timed(result: CaseResult) -> bool:
    """Whether the case counts as timed. In a run that measures nothing, agreeing cases do not."""
    verdict = result.record.verdict
    failed = not isinstance(verdict, Agrees) and not _is_excused(verdict)
    return result.record.case.timed and (result.timing is not None or failed)


def geomean(values: Sequence[float]) -> float | None:
    """Geometric mean; None if there are no values."""
    return math.exp(sum(math.log(value) for value in values) / len(values)) if values else None


def _geomean_interval(ratios: Sequence[Speedup]) -> tuple[float | None, float | None]:
    if not ratios:
        return None, None
    centre = sum(math.log(item.ratio) for item in ratios)
    below = math.sqrt(sum(math.log(item.ratio / item.low) ** 2 for item in ratios))
    above = math.sqrt(sum(math.log(item.high / item.ratio) ** 2 for item in ratios))
    return math.exp((centre - below) / len(ratios)), math.exp((centre + above) / len(ratios))


def _largest(results: Iterable[CaseResult], chosen: Callable[[ErrorStatistics], float | None]) -> float | None:
    """The largest finite value. NaN and infinity do not count, because a journal stores them as None."""
    values = (chosen(item.errors) for item in results)
    return max((value for value in values if value is not None and math.isfinite(value)), default=None)


def _worst_over_bound(results: Iterable[CaseResult]) -> OverBound | None:
    """The largest value. Infinity counts and is the text ``inf``: a journal cannot store the number."""
    values = (item.errors.worst_over_bound for item in results)
    known = (value for value in values if value == "inf" or (value is not None and math.isfinite(value)))
    return max(known, key=float, default=None)
