"""Computes counts and mean speedups of a run over benchmark pairs, in total and for each chapter (folder)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from torchstone.harness.plan import PlannedPair
from torchstone.harness.results import BenchmarkResult, PairRecord, Side
from torchstone.reports.safe_text import natural

ChapterStatus = Literal["PASS", "FAIL", "SKIPPED", "NOT RUN"]


class Extreme(msgspec.Struct, frozen=True):
    """The pair with the best or the worst speedup."""

    chapter: str
    example: str
    """With its variant: `moe_sparse`."""
    speedup: float


class ChapterSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One chapter."""

    chapter: str
    status: ChapterStatus
    """`PASS`: nothing in it failed. `SKIPPED`, `NOT RUN`: nothing in it was run."""
    benchmarks: int
    successful: int
    """Both sides ran and agree, regressions included."""
    failed: int
    regressions: int
    skipped: int
    not_run: int
    average_speedup: float | None
    """Geometric mean over the successful pairs. None: there is none."""


class PairsSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The whole run."""

    chapters_tested: int
    """Chapters in which at least one pair was run, not only skipped."""
    chapters_total: int
    total_benchmarks: int
    successful: int
    """Both sides ran and agree, regressions included."""
    failed: int
    regressions: int
    skipped: int
    not_run: int
    """Pairs that were planned but not run."""
    harness_errors: int
    """Pairs, counted as failed, on which the harness itself failed. A resumed run tries them again."""
    average_speedup: float | None
    """Geometric mean over the successful pairs."""
    best: Extreme | None
    worst: Extreme | None
    chapters: tuple[ChapterSummary, ...]

    @property
    def is_fine(self) -> bool:
        """Whether nothing failed, regressed or was left out. Skipped pairs are allowed."""
        return not (self.failed or self.regressions or self.not_run)


class Failure(msgspec.Struct, frozen=True):
    """Why one pair failed, in one line each."""

    name: str
    side: Side | Literal["both", "pair"]
    """`pair`: the sides themselves are fine, their outputs differ."""
    stage: str
    reason: str
    suggestion: str


def summarize(records: Sequence[PairRecord], planned: Sequence[PlannedPair]) -> PairsSummary:
    """Compute counts and means. Planned pairs without a record were not run."""
    not_run = unreached(records, planned)
    names = {*(record.chapter for record in records), *(pair.chapter for pair in not_run)}
    chapters = tuple(
        _chapter(
            name,
            [record for record in records if record.chapter == name],
            sum(pair.chapter == name for pair in not_run),
        )
        for name in sorted(names, key=natural)
    )
    ranked = sorted((record for record in records if is_successful(record) and _speedup(record) > 0), key=_speedup)
    return PairsSummary(
        chapters_tested=sum(chapter.successful + chapter.failed > 0 for chapter in chapters),
        chapters_total=len(chapters),
        total_benchmarks=len(records) + len(not_run),
        successful=sum(chapter.successful for chapter in chapters),
        failed=sum(chapter.failed for chapter in chapters),
        regressions=sum(chapter.regressions for chapter in chapters),
        skipped=sum(chapter.skipped for chapter in chapters),
        not_run=len(not_run),
        harness_errors=sum(bool(record.harness_error) for record in records),
        average_speedup=_geometric_mean(speedups(records)),
        best=_extreme(ranked[-1]) if ranked else None,
        worst=_extreme(ranked[0]) if ranked else None,
        chapters=chapters,
    )


def unreached(records: Iterable[PairRecord], planned: Iterable[PlannedPair]) -> tuple[PlannedPair, ...]:
    """The planned pairs without a record."""
    there = {record.key for record in records}
    return tuple(pair for pair in planned if pair.key not in there)


def is_successful(record: PairRecord) -> bool:
    """Whether both sides ran and their outputs agree. A regression counts as successful."""
    return record.status in ("succeeded", "regression")


def speedups(records: Iterable[PairRecord]) -> list[float]:
    """Speedups of the successful pairs. A failed pair has none, even if its sides were timed."""
    found = (record.comparison.speedup for record in records if is_successful(record))
    return [speedup for speedup in found if speedup is not None and speedup > 0]


def short_name(record: PairRecord) -> str:
    """`moe_sparse` of `ch13/moe_sparse`."""
    return record.name.removeprefix(f"{record.chapter}/")


def failure_of(record: PairRecord) -> Failure:
    """Why a failed pair failed."""
    comparison = record.comparison
    sides: dict[Side, BenchmarkResult] = {"baseline": comparison.baseline, "optimized": comparison.optimized}
    bad = {name: side for name, side in sides.items() if side.status in ("failed", "timeout")}
    if not bad:
        message = comparison.outputs.message if comparison.outputs is not None else ""
        return Failure(record.name, "pair", "validation", message or "the outputs of both sides differ", "")
    both = len(bad) == 2 and comparison.baseline.errors == comparison.optimized.errors
    reasons = {name: _reason(side) for name, side in bad.items()}
    side_name, side = next(iter(bad.items()))
    if both or len(bad) == 1:
        told = reasons[side_name]
    else:
        told = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
    suggestion = next((side.suggestion for side in bad.values() if side.suggestion), "")
    return Failure(record.name, "both" if len(bad) == 2 else side_name, side.stage or "–", told, suggestion)


def _reason(side: BenchmarkResult) -> str:
    if side.errors:
        return side.errors[0]
    return f"{side.status} in stage {side.stage}" if side.stage else side.status


def _chapter(name: str, records: Sequence[PairRecord], not_run: int) -> ChapterSummary:
    count = {status: sum(record.status == status for record in records) for status in ("failed", "skipped")}
    successful = sum(is_successful(record) for record in records)
    return ChapterSummary(
        chapter=name,
        status=_status(count["failed"], successful, count["skipped"]),
        benchmarks=len(records) + not_run,
        successful=successful,
        failed=count["failed"],
        regressions=sum(record.status == "regression" for record in records),
        skipped=count["skipped"],
        not_run=not_run,
        average_speedup=_geometric_mean(speedups(records)),
    )


def _status(failed: int, successful: int, skipped: int) -> ChapterStatus:
    if failed:
        return "FAIL"
    if successful:
        return "PASS"
    return "SKIPPED" if skipped else "NOT RUN"


def _geometric_mean(values: Sequence[float]) -> float | None:
    return math.exp(math.fsum(map(math.log, values)) / len(values)) if values else None


def _speedup(record: PairRecord) -> float:
    return record.comparison.speedup or 0.0


def _extreme(record: PairRecord) -> Extreme:
    return Extreme(record.chapter, short_name(record), _speedup(record))
