"""Plans a run: makes a job of every case and its kernel, except those whose results the journal has. Does no I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from torchstone.runs.journal import RecordKind
from torchstone.schema import (
    Baseline,
    Cache,
    Case,
    Deadlines,
    Effort,
    Implementation,
    ImplementationReference,
    Isolation,
    IsolationLevel,
    Job,
    Missing,
    NonFiniteInputs,
    PlannedCases,
    Record,
    Shapes,
    TimedOut,
    Unjudged,
    content_key,
    forward_operator,
)

CASE_RECORDS = RecordKind(
    name="case",
    type=Record,
    key=lambda record: record.job_key,
    tried_again=lambda record: isinstance(record.verdict, Unjudged),
)
"""The kind of journal that a run of judged cases has. A resumed run judges `unjudged` cases again."""


class Terms(msgspec.Struct, frozen=True):
    """Settings that all jobs of a run share."""

    backend: str
    """Name of the backend, for the records of operators for which it has no kernel."""
    effort: Effort = "normal"
    deadlines: Deadlines = Deadlines()
    measured: bool = True
    """False: timed cases are only checked."""
    require_authored: bool = False
    cache: Cache = "cold"
    shapes: Shapes = "near"
    non_finite: NonFiniteInputs = "check"
    try_every_case: bool = False
    baseline: Baseline = "eager"
    device: str = "cpu"
    isolation: IsolationLevel = "best"
    manifest_key: str = ""


class JobPlan(msgspec.Struct, frozen=True):
    """The cases of a run. Each is in exactly one of ``jobs``, ``missing`` and ``done``."""

    jobs: tuple[Job, ...]
    """Jobs to judge. Those of one implementation follow each other, so that one worker can serve them."""
    missing: tuple[Record, ...]
    """Records, not yet in the journal, of cases for which the backend has no kernel."""
    done: tuple[Record, ...]
    """Records that the journal has already."""
    terms: Terms
    awaited: int = 0
    """Number of cases that the suite has not found yet."""

    @property
    def keys(self) -> frozenset[str]:
        """The job keys that a complete journal of this plan holds."""
        records = {record.job_key for record in (*self.missing, *self.done)}
        return frozenset(records | {job.key for job in self.jobs})

    @property
    def total(self) -> int:
        return len(self.jobs) + len(self.missing) + len(self.done) + self.awaited

    @property
    def operators(self) -> tuple[str, ...]:
        """The operator of every case."""
        cases = (*(item.case for item in (*self.done, *self.missing)), *(job.case for job in self.jobs))
        return tuple(case.operator for case in cases)


def make_plan(
    cases: Sequence[Case],
    offers: Mapping[str, Implementation | None],
    terms: Terms,
    held: Iterable[Record] = (),
    why_missing: Callable[[str], str] | None = None,
) -> JobPlan:
    """Pair every case with the implementation that is offered for its operator.

    `held`: records of earlier parts of the run. `why_missing` returns why a backend offers nothing for an operator.
    """
    judged = {record.job_key: record for record in held if not _is_open(record, terms)}
    jobs = _jobs(cases, offers, terms)
    missing = {
        record.job_key: record
        for record in (_missing(case, terms, why_missing) for case in cases if offers[case.operator] is None)
    }
    return JobPlan(
        jobs=tuple(job for key, job in jobs.items() if key not in judged),
        missing=tuple(record for key, record in missing.items() if key not in judged),
        done=tuple(judged[key] for key in (*jobs, *missing) if key in judged),
        terms=terms,
    )


def _is_open(record: Record, terms: Terms) -> bool:
    """Whether a case that has this record is to be judged again."""
    left_out = isinstance(record.verdict, TimedOut) and bool(record.verdict.not_tried)
    return CASE_RECORDS.tried_again(record) or (terms.try_every_case and left_out)


def join(plans: Sequence[JobPlan]) -> JobPlan:
    """Join the plans of several backends to one, sorted by operator, so that compared kernels are timed in turn."""
    if len(plans) == 1:
        return plans[0]
    place = {name: number for number, name in enumerate(dict.fromkeys(name for p in plans for name in p.operators))}
    jobs = sorted((job for plan in plans for job in plan.jobs), key=lambda job: place[job.case.operator])
    return JobPlan(
        jobs=tuple(jobs),
        missing=tuple(record for plan in plans for record in plan.missing),
        done=tuple(record for plan in plans for record in plan.done),
        terms=plans[0].terms,
    )


def planned_cases(plans: Iterable[JobPlan]) -> tuple[PlannedCases, ...]:
    """How many cases are planned for each backend and operator."""
    return tuple(
        PlannedCases(plan.terms.backend, operator, count)
        for plan in plans
        for operator, count in sorted(Counter(plan.operators).items())
    )


def _jobs(cases: Sequence[Case], offers: Mapping[str, Implementation | None], terms: Terms) -> dict[str, Job]:
    """Jobs by key, grouped by implementation in the order of the cases. A case that is listed twice is one job."""
    groups: dict[str, dict[str, Job]] = {}
    for case in cases:
        implementation = offers[case.operator]
        if implementation is None:
            continue
        kind = (terms.effort, terms.deadlines, terms.measured, terms.require_authored, terms.cache)
        others = ("shapes", "non_finite", "try_every_case", "baseline")
        job = Job(case, implementation, *kind, **{name: getattr(terms, name) for name in others})
        groups.setdefault(implementation.key, {}).setdefault(job.key, job)
    return {key: job for group in groups.values() for key, job in group.items()}


def _missing(case: Case, terms: Terms, why_missing: Callable[[str], str] | None) -> Record:
    reason = f"backend '{terms.backend}' offers nothing for {case.operator}"
    if why_missing is not None:
        reason += f": {why_missing(forward_operator(case.operator))}"
    return Record(
        job_key=content_key("missing", terms.backend, case.key),
        case=case,
        implementation=ImplementationReference(terms.backend, case.operator, "python", where="", key=""),
        verdict=Missing(reason),
        manifest_key=terms.manifest_key,
        device=terms.device,
        isolation=Isolation(terms.isolation),
    )
