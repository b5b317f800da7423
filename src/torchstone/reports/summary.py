"""The summary: counts, scores and speedups, computed from records.

Separate from the files and tables that show it. Records in any order give the same summary to the last bit. A failed
case has no speed, and an operator that the backend lacks stays in every count.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any, get_args

import msgspec

from torchstone.backends import Problem
from torchstone.measuring import Attainment, Speedup, Timing, timing
from torchstone.reports.best import BackendSpeed, fastest
from torchstone.reports.facts import RunFacts, backends_in, run_facts
from torchstone.reports.isolation import IsolationSummary, isolation_in_force
from torchstone.reports.text import natural
from torchstone.schema import (
    Agrees,
    Disagrees,
    ErrorStatistics,
    Missing,
    OverBound,
    PlannedRun,
    Record,
    RunDescription,
    Unsupported,
    Verdict,
    encode,
    verdict_name,
)

VERDICT_NAMES = tuple(str(kind.__struct_config__.tag) for kind in get_args(Verdict))
"""In the order in which they are shown."""


class CaseResult(msgspec.Struct, frozen=True):
    """A record and its computed timing."""

    record: Record
    timing: Timing | None
    """None: it was not measured."""

    @property
    def speedup(self) -> Speedup | None:
        return self.timing.speedup if self.timing is not None else None

    @property
    def attainment(self) -> Attainment | None:
        return self.timing.attainment if self.timing is not None else None

    @property
    def errors(self) -> ErrorStatistics:
        verdict = self.record.verdict
        return verdict.errors if isinstance(verdict, Agrees | Disagrees) else ErrorStatistics()


class OperatorSummary(msgspec.Struct, frozen=True):
    """One operator's cases together."""

    operator: str
    cases: int
    """Those with a record."""
    counts: dict[str, int]
    """Cases per verdict, those without any left out."""
    excused: int
    """Cases that the reference or the device cannot do: they say nothing about the kernel."""
    correctness: float | None
    """Agreeing cases over all but the excused; None if nothing is left."""
    right: bool
    """Every case agrees."""
    missing: bool
    """The backend offers nothing for it."""
    timed_cases: int
    """Cases whose speed counts and that were measured, or failed before they could be."""
    measured_cases: int
    resolved_cases: int
    """Measured cases that have a speedup. The others are undecided and are in no mean."""
    geomean_speedup: float | None
    """Over the resolved cases; None without any."""
    speedup_low: float | None
    """Of the 95 % interval of the geometric mean, from the cases' own intervals taken as independent."""
    speedup_high: float | None
    average_speedup: float | None
    candidate_ns: float | None
    """Geometric mean of the resolved cases' times per call."""
    reference_ns: float | None
    max_abs_error: float | None
    max_rel_error: float | None
    worst_over_bound: OverBound | None
    """Largest error over its bound; above 1, infinity included, does not agree."""
    of_limit_percent: float | None = None
    """Geometric mean over the resolved cases of the device's least time over the candidate's. Never cut at 100."""
    reference_of_limit_percent: float | None = None
    bounds: dict[str, int] = {}
    """What sets the limit (memory, compute, latency), in how many cases."""
    over_limit_cases: int = 0
    """Cases in which the candidate is faster than the limit: work counted too high, or ceilings measured too low."""
    backend: str = ""
    """Where the kernel comes from."""
    not_judged: int = 0
    """Planned cases without a record. An operator that has any is not right, but neither is it wrong for that."""
    capped: tuple[str, ...] = ()
    """Why speedups of cases are smaller than what their blocks show; one text for each such case."""
    best: bool = False
    """Right, and faster than what every other backend of the run offers, beyond the intervals of both."""

    @property
    def open(self) -> bool:
        """Whether no case failed, but some were not judged."""
        held = self.counts.get("agrees", 0) + self.counts.get("unjudged", 0) + self.excused
        return self.not_judged > 0 and held == self.cases


class Scores(msgspec.Struct, frozen=True):
    """Counts and scores over the cases of some operators."""

    cases: int
    counts: dict[str, int]
    excused: int
    operators_total: int
    operators_right: int
    operators_missing: int
    operators_not_judged: int
    """Operators with planned cases that have no record, and no case that failed."""
    mean_correctness: float | None
    """Mean of the operators' correctness, missing ones counting zero."""
    geomean_speedup: float | None
    """Over the operators that are right and have a speedup."""
    operators_timed: int
    """How many those are."""
    p: float
    perf_at_p: float
    """Share of all operators that are right and more than `p` times as fast. All operators: wrong, missing and
    undecided ones included."""
    operators_undecided: int
    """Operators that are right and were timed, and of which no case has a speedup."""
    cases_undecided: int
    """Cases that were timed and have no speedup. They are in no mean."""


class BackendSummary(Scores, frozen=True):
    """The scores of one of several backends."""

    backend: str
    operators_best: int
    """Operators on which it is faster than every other backend."""
    not_judged: int
    """Planned cases without a record."""


class Summary(Scores, frozen=True):
    """A whole run. Where several backends are compared, an operator counts once for each of them."""

    devices: tuple[str, ...]
    isolation: IsolationSummary
    operators: tuple[OperatorSummary, ...]
    problems: tuple[Problem, ...] = ()
    """What the backends found and could not use."""
    stated_shapes_cases: int = 0
    """Cases that were judged on the stated sizes and memory layouts alone."""
    compiled_baseline_cases: int = 0
    """Cases whose speed is compared with torch.compile."""
    not_judged: int | None = None
    """Planned cases without a record: the run was stopped before them, or goes on. None: the plan is not known."""
    backends: tuple[BackendSummary, ...] = ()
    """One for each backend where several are compared, otherwise empty."""
    device_types: dict[str, int] = {}
    """Cases by type of device. Speeds are never averaged over several types."""
    run: RunFacts | None = None
    """When, where and by which command; None for records that come from no run folder."""

    @property
    def compares(self) -> bool:
        """Whether several backends are compared."""
        return bool(self.backends)


def device_types(records: Iterable[Record]) -> dict[str, int]:
    """How many records each type of device has; records of earlier versions have none."""
    return dict(sorted(Counter(record.device_model for record in records if record.device_model).items()))


def mixes_types(results: Iterable[CaseResult]) -> bool:
    """Whether times were taken on devices of several types."""
    return len({item.record.device_model for item in results if item.timing is not None}) > 1


Groups = dict[tuple[str, str], tuple[tuple[CaseResult, ...], int]]
"""By operator and backend: the results, and how many planned cases have none."""


def evaluate(records: Iterable[Record]) -> tuple[CaseResult, ...]:
    """The records in their one order, with their timings."""
    ordered = sorted(records, key=_place)
    return tuple(CaseResult(record, _timing(record)) for record in ordered)


def _is_against_compile(record: Record) -> bool:
    return record.measurement is not None and record.measurement.baseline == "compile"


def _place(record: Record) -> tuple[object, ...]:
    operator, backend = natural(record.case.operator), natural(record.implementation.backend)
    return operator, backend, natural(record.case.label), record.job_key, encode(record)


def _timing(record: Record) -> Timing | None:
    measurement = record.measurement
    if measurement is None or not {"candidate", "reference"} <= {block.party for block in measurement.blocks}:
        return None
    return timing(measurement)


def summarise(records: Iterable[Record], problems: Iterable[Problem] = (), p: float = 1.0) -> Summary:
    """Compute the summary of a run from its records."""
    return fold(evaluate(records), problems, p=p)


def fold(
    results: Sequence[CaseResult],
    problems: Iterable[Problem] = (),
    description: RunDescription | None = None,
    p: float = 1.0,
) -> Summary:
    """The same for results of :func:`evaluate`, in its order, so that no timing is computed twice."""
    names = _backends(results, description)
    planned = description.planned if description is not None else None
    groups = _grouped(results, names, planned)
    operators = tuple(_operator(*key, *group) for key, group in groups.items())
    if len(names) > 1:
        operators = _with_best(operators, groups)
    return Summary(
        **_scores(operators, results, p),
        devices=tuple(sorted({item.record.device for item in results})),
        device_types=device_types(item.record for item in results),
        isolation=isolation_in_force(item.record for item in results),
        operators=operators,
        problems=tuple(sorted(problems, key=lambda problem: (problem.where, problem.reason))),
        compiled_baseline_cases=sum(_is_against_compile(item.record) for item in results),
        stated_shapes_cases=sum(item.record.shapes == "stated" for item in results),
        not_judged=None if planned is None else sum(item.not_judged for item in operators),
        backends=tuple(_backend(name, operators, results, p) for name in names) if len(names) > 1 else (),
        run=None if description is None else run_facts(description, (item.record for item in results)),
    )


def _backends(results: Sequence[CaseResult], description: RunDescription | None) -> tuple[str, ...]:
    """What is compared: the backends that were asked for, or without a request those that the records name."""
    if description is not None:
        return backends_in(description)
    return tuple(sorted({item.record.implementation.backend for item in results}, key=natural))


def _grouped(results: Iterable[CaseResult], names: tuple[str, ...], planned: PlannedRun | None) -> Groups:
    """The groups in their one order."""
    found: dict[tuple[str, str], list[CaseResult]] = {}
    wanted = {(item.operator, item.backend): item.cases for item in planned.cases} if planned is not None else {}
    for item in results:
        backend = names[0] if len(names) == 1 else item.record.implementation.backend
        found.setdefault((item.record.case.operator, backend), []).append(item)
    keys = sorted(found.keys() | wanted.keys(), key=lambda key: (natural(key[0]), natural(key[1])))
    return {key: _group(found.get(key, []), wanted.get(key, 0)) for key in keys}


def _group(results: list[CaseResult], wanted: int) -> tuple[tuple[CaseResult, ...], int]:
    return tuple(results), max(0, wanted - len(results))


def _with_best(operators: Iterable[OperatorSummary], groups: Groups) -> tuple[OperatorSummary, ...]:
    """The same with the fastest backend of each operator marked."""
    made: list[OperatorSummary] = []
    for _, group in groupby(operators, key=lambda item: item.operator):
        entries = {item.backend: item for item in group}
        speeds = {name: _speed(item, groups[item.operator, name][0]) for name, item in entries.items() if item.right}
        winner = fastest(speeds)
        made += (msgspec.structs.replace(item, best=name == winner) for name, item in entries.items())
    return tuple(made)


def _speed(item: OperatorSummary, results: Iterable[CaseResult]) -> BackendSpeed | None:
    if item.geomean_speedup is None or item.speedup_low is None or item.speedup_high is None:
        return None
    # On another type of device the same case is another one.
    timed = [result.record for result in results if result.speedup is not None]
    cases = frozenset(f"{record.case.key} {record.device_model}" for record in timed)
    return BackendSpeed(item.speedup_low, item.geomean_speedup, item.speedup_high, cases)


def _backend(
    name: str, operators: Iterable[OperatorSummary], results: Iterable[CaseResult], p: float
) -> BackendSummary:
    own = [item for item in operators if item.backend == name]
    return BackendSummary(
        **_scores(own, [item for item in results if item.record.implementation.backend == name], p),
        backend=name,
        operators_best=sum(item.best for item in own),
        not_judged=sum(item.not_judged for item in own),
    )


def _scores(operators: Sequence[OperatorSummary], results: Sequence[CaseResult], p: float) -> dict[str, Any]:
    """The fields of :class:`Scores`."""
    right = [item for item in operators if item.right]
    speedups = [item.geomean_speedup for item in right if item.geomean_speedup is not None]
    like = not mixes_types(results)
    scores = [item.correctness for item in operators if item.correctness is not None]
    return {
        "cases": len(results),
        "counts": _counts(results),
        "excused": sum(item.excused for item in operators),
        "operators_total": len(operators),
        "operators_right": len(right),
        "operators_missing": sum(item.missing for item in operators),
        "operators_not_judged": sum(item.open for item in operators),
        "mean_correctness": sum(scores) / len(scores) if scores else None,
        "geomean_speedup": _geomean(speedups) if like else None,
        "operators_timed": len(speedups),
        "p": p,
        "perf_at_p": sum(value > p for value in speedups) / len(operators) if operators else 0.0,
        "operators_undecided": sum(bool(item.measured_cases) and not item.resolved_cases for item in right),
        "cases_undecided": sum(item.measured_cases - item.resolved_cases for item in operators),
    }


def _operator(name: str, backend: str, results: Sequence[CaseResult], not_judged: int) -> OperatorSummary:
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
        counts=_counts(results),
        excused=excused,
        correctness=agreeing / judgeable if judgeable else None,
        right=0 < judgeable == agreeing and not not_judged,
        missing=bool(results) and all(isinstance(item.record.verdict, Missing) for item in results),
        timed_cases=sum(_counts_as_timed(item) for item in results),
        measured_cases=sum(item.timing is not None for item in results),
        resolved_cases=len(resolved),
        geomean_speedup=_geomean([item.ratio for item in ratios]),
        speedup_low=low,
        speedup_high=high,
        average_speedup=sum(item.ratio for item in ratios) / len(ratios) if ratios else None,
        candidate_ns=_geomean([item.candidate_ns for item in resolved]),
        reference_ns=_geomean([item.reference_ns for item in resolved]),
        max_abs_error=_largest(results, lambda errors: errors.max_abs_error),
        max_rel_error=_largest(results, lambda errors: errors.max_rel_error),
        worst_over_bound=_worst_over_bound(results),
        of_limit_percent=_geomean([item.candidate_percent for item in attained]),
        reference_of_limit_percent=_geomean([item.reference_percent for item in attained]),
        bounds=dict(sorted(Counter(item.bound for item in attained).items())),
        over_limit_cases=sum(item.over_limit for item in attained),
        capped=tuple(item.capped for item in ratios if item.capped),
        backend=backend,
        not_judged=not_judged,
    )


def _is_excused(verdict: Verdict) -> bool:
    return isinstance(verdict, Unsupported) and verdict.by != "candidate"


def _counts_as_timed(result: CaseResult) -> bool:
    """Whether the case belongs in a count of speed tests: a run that only checks has none that agree."""
    verdict = result.record.verdict
    failed = not isinstance(verdict, Agrees) and not _is_excused(verdict)
    return result.record.case.timed and (result.timing is not None or failed)


def _counts(results: Iterable[CaseResult]) -> dict[str, int]:
    found = Counter(verdict_name(item.record.verdict) for item in results)
    return {name: found[name] for name in VERDICT_NAMES if found[name]}


def _geomean(values: Sequence[float]) -> float | None:
    return math.exp(sum(math.log(value) for value in values) / len(values)) if values else None


def _geomean_interval(ratios: Sequence[Speedup]) -> tuple[float | None, float | None]:
    if not ratios:
        return None, None
    centre = sum(math.log(item.ratio) for item in ratios)
    below = math.sqrt(sum(math.log(item.ratio / item.low) ** 2 for item in ratios))
    above = math.sqrt(sum(math.log(item.high / item.ratio) ** 2 for item in ratios))
    return math.exp((centre - below) / len(ratios)), math.exp((centre + above) / len(ratios))


def _largest(results: Iterable[CaseResult], chosen: Callable[[ErrorStatistics], float | None]) -> float | None:
    """The largest finite value. Others are None in a journal, so they are None here before they went through one."""
    values = (chosen(item.errors) for item in results)
    return max((value for value in values if value is not None and math.isfinite(value)), default=None)


def _worst_over_bound(results: Iterable[CaseResult]) -> OverBound | None:
    """Infinity counts, in its word: a number that is not finite would be lost in a journal."""
    values = (item.errors.worst_over_bound for item in results)
    known = (value for value in values if value == "inf" or (value is not None and math.isfinite(value)))
    return max(known, key=float, default=None)
