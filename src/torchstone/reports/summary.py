"""Computes the summary of a run from its records: counts, scores and speedups of all operators and backends.

Other modules format it as files and tables. Records in any order give the same summary to the last bit. A failed case
has no speedup. Operators for which the backend has no kernel are part of every count.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

import msgspec

from torchstone.backends import Problem
from torchstone.reports.case_results import CaseResult, counts_of, device_types, evaluate, mixes_types
from torchstone.reports.fastest_backend import BackendSpeed, fastest
from torchstone.reports.isolation import IsolationSummary, isolation_in_force
from torchstone.reports.operator_summary import OperatorSummary, geomean, operator_summary
from torchstone.reports.run_circumstances import RunCircumstances, backends_in, circumstances_of
from torchstone.reports.safe_text import natural
from torchstone.schema import PlannedRun, Record, RunDescription


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
    """Mean of the operators' correctness. A missing operator counts as 0."""
    geomean_speedup: float | None
    """Geometric mean over the operators that are right and have a speedup."""
    operators_timed: int
    """Number of operators that are right and have a speedup."""
    p: float
    perf_at_p: float
    """Share of all operators that are right and more than `p` times as fast. Wrong, missing and unresolved operators
    are counted in the denominator."""
    operators_unresolved: int
    """Right and timed operators without a case that has a speedup."""
    cases_unresolved: int
    """Timed cases without a speedup. They are part of no mean."""


class BackendSummary(Scores, frozen=True):
    """The scores of one of several backends."""

    backend: str
    operators_best: int
    """Operators on which this backend is faster than every other backend that is right."""
    not_judged: int
    """Planned cases without a record."""


class Summary(Scores, frozen=True):
    """Summary of a run. If several backends are compared, an operator counts once for each backend."""

    devices: tuple[str, ...]
    isolation: IsolationSummary
    operators: tuple[OperatorSummary, ...]
    problems: tuple[Problem, ...] = ()
    """Files and folders that the backends could not use, with the reason."""
    stated_shapes_cases: int = 0
    """Cases that were judged on the stated sizes and memory layouts alone."""
    compiled_baseline_cases: int = 0
    """Cases whose speed is compared with torch.compile."""
    not_judged: int | None = None
    """Planned cases without a record: the run was stopped, or is in progress. None: the plan is not known."""
    left_out: dict[str, int] = {}
    """Reason -> number of selected entries of the suite's source that it does not make a case of."""
    backends: tuple[BackendSummary, ...] = ()
    """One for each backend if several are compared, otherwise empty."""
    device_types: dict[str, int] = {}
    """Cases by type of device. Speeds are never averaged over several types."""
    run: RunCircumstances | None = None
    """Circumstances of the run; None for records that are not from a run folder."""

    @property
    def compares(self) -> bool:
        """Whether several backends are compared."""
        return bool(self.backends)


Groups = dict[tuple[str, str], tuple[tuple[CaseResult, ...], int]]
"""(operator, backend) -> the results, and the number of planned cases without a result."""


def summarise(records: Iterable[Record], problems: Iterable[Problem] = (), p: float = 1.0) -> Summary:
    """Compute the summary of a run from its records."""
    return summarise_results(evaluate(records), problems, p=p)


def summarise_results(
    results: Sequence[CaseResult],
    problems: Iterable[Problem] = (),
    description: RunDescription | None = None,
    p: float = 1.0,
) -> Summary:
    """Compute the summary as `summarise` does, from the results of :func:`evaluate`: no timing is computed twice."""
    names = _backends(results, description)
    planned = description.planned if description is not None else None
    groups = _grouped(results, names, planned)
    operators = tuple(operator_summary(*key, *group) for key, group in groups.items())
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
        left_out={} if planned is None else planned.left_out,
        backends=tuple(_backend(name, operators, results, p) for name in names) if len(names) > 1 else (),
        run=None if description is None else circumstances_of(description, (item.record for item in results)),
    )


def _is_against_compile(record: Record) -> bool:
    return record.measurement is not None and record.measurement.baseline == "compile"


def _backends(results: Sequence[CaseResult], description: RunDescription | None) -> tuple[str, ...]:
    """The backends of the run: those of the request, or those in the records if the request is not known."""
    if description is not None:
        return backends_in(description)
    return tuple(sorted({item.record.implementation.backend for item in results}, key=natural))


def _grouped(results: Iterable[CaseResult], names: tuple[str, ...], planned: PlannedRun | None) -> Groups:
    """Results by operator and backend, in natural order of names."""
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
    """The operators, with the fastest backend of each marked as best."""
    marked: list[OperatorSummary] = []
    for _, group in groupby(operators, key=lambda item: item.operator):
        entries = {item.backend: item for item in group}
        speeds = {name: _speed(item, groups[item.operator, name][0]) for name, item in entries.items() if item.right}
        winner = fastest(speeds)
        marked += (msgspec.structs.replace(item, best=name == winner) for name, item in entries.items())
    return tuple(marked)


def _speed(item: OperatorSummary, results: Iterable[CaseResult]) -> BackendSpeed | None:
    if item.geomean_speedup is None or item.speedup_low is None or item.speedup_high is None:
        return None
    # The same case on another type of device counts as another case.
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
    on_one_device_type = not mixes_types(results)
    scores = [item.correctness for item in operators if item.correctness is not None]
    return {
        "cases": len(results),
        "counts": counts_of(results),
        "excused": sum(item.excused for item in operators),
        "operators_total": len(operators),
        "operators_right": len(right),
        "operators_missing": sum(item.missing for item in operators),
        "operators_not_judged": sum(item.open for item in operators),
        "mean_correctness": sum(scores) / len(scores) if scores else None,
        "geomean_speedup": geomean(speedups) if on_one_device_type else None,
        "operators_timed": len(speedups),
        "p": p,
        "perf_at_p": sum(value > p for value in speedups) / len(operators) if operators else 0.0,
        "operators_unresolved": sum(bool(item.measured_cases) and not item.resolved_cases for item in right),
        "cases_unresolved": sum(item.measured_cases - item.resolved_cases for item in operators),
    }
