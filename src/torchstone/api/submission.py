"""From kernels and settings to jobs: which cases a kernel is judged on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from torchstone import registry
from torchstone.api.evaluation import Evaluation
from torchstone.api.settings import Settings, request_of
from torchstone.errors import UsageError
from torchstone.executors import Ticket, ticket_of
from torchstone.runs.plan import Terms, make_plan
from torchstone.runs.run import choose_cases, choose_implementations, query_of
from torchstone.schema import Case, Implementation, Job, Record, forward_operator
from torchstone.suites import ListedSuite, names_operator, select_cases

Purpose = Literal["check", "measure", "evaluate"]
"""Check: nothing is timed. Measure: only cases that are timed. Evaluate: all cases, and those are timed that can be."""


@dataclass(frozen=True, eq=False)
class Submission:
    """One kernel with its jobs, and the future of its evaluation."""

    operator: str
    jobs: tuple[Job, ...]
    future: Future[Evaluation] = field(default_factory=Future)
    records: dict[Ticket, Record] = field(default_factory=dict)
    """Those that are there."""
    keep: Callable[[Evaluation], None] | None = None
    """Called with the evaluation before the future has it, so that a caller who has it finds it kept."""

    @property
    def is_complete(self) -> bool:
        return len(self.records) == len(self.jobs)

    def evaluation(self) -> Evaluation:
        """The records in the order of the jobs."""
        return Evaluation(self.operator, tuple(self.records[ticket_of(job)] for job in self.jobs))

    def resolve(self) -> None:
        """Give the evaluation to the future, unless that was cancelled."""
        if not self.future.set_running_or_notify_cancel():
            return
        evaluation = self.evaluation()
        try:
            if self.keep is not None:
                self.keep(evaluation)
        except Exception as error:  # noqa: BLE001 - a warning made an error, for example; the caller must not wait for ever
            self.future.set_exception(error)
            return
        self.future.set_result(evaluation)


class _OneKernel:
    """A backend that offers one kernel, for whatever operator is asked."""

    def __init__(self, implementation: Implementation) -> None:
        self._implementation = implementation

    def implementation(self, operator: str) -> Implementation | None:
        return self._implementation


def submissions_for(
    offered: Mapping[str, Implementation], settings: Settings, device: str, purpose: Purpose
) -> dict[str, Submission]:
    """A submission for each operator. Cases are chosen for all at once: some suites prepare theirs."""
    cases = _cases(tuple(offered), settings, device)
    terms = Terms(
        "api",
        settings.effort,
        settings.deadlines,
        purpose != "check",
        settings.require_authored,
        settings.cache,
        settings.shapes,
        settings.non_finite,
        settings.try_every_case,
        baseline=settings.baseline,
    )
    found: dict[str, Submission] = {}
    for operator, implementation in offered.items():
        own = tuple(
            case for case in cases if names_operator(operator, case.operator) and (purpose != "measure" or case.timed)
        )
        plan = make_plan(own, choose_implementations(own, _OneKernel(implementation)), terms)
        found[operator] = Submission(operator, plan.jobs)
    if not any(each.jobs for each in found.values()):
        raise UsageError(f"no case to {purpose}. Give cases with timed=True, or another suite.")
    return found


def operator_of(cases: tuple[Case, ...] | None) -> str:
    """The one operator of these cases, where none was named."""
    names = {forward_operator(case.operator) for case in cases or ()}
    if len(names) != 1:
        raise UsageError(f"the operator is not named, and the cases have {len(names)}. Name it: 'aten.relu.default'.")
    return names.pop()


def has_cases(operator: str, settings: Settings, device: str) -> bool:
    """Whether there is a case of this operator."""
    try:
        return bool(_cases((operator,), settings, device))
    except UsageError:
        return False


def _cases(operators: tuple[str, ...], settings: Settings, device: str) -> tuple[Case, ...]:
    if settings.cases is not None:
        query = query_of(request_of(settings, operators), device)
        return select_cases("cases", ListedSuite(settings.cases), query)
    if settings.source is not None:  # a file, which may change
        return _of_suite(operators, settings, device)
    chosen = ("suite", "dtypes", "largest", "sample", "mode")
    return _kept(operators, device, **{name: getattr(settings, name) for name in chosen})


def _of_suite(operators: tuple[str, ...], settings: Settings, device: str) -> tuple[Case, ...]:
    suite = registry.suites.factory(settings.suite)()
    return choose_cases(request_of(settings, operators), device, suite)


@lru_cache(maxsize=64)
def _kept(operators: tuple[str, ...], device: str, **chosen: object) -> tuple[Case, ...]:
    """The same for suites whose cases do not change while the program runs."""
    return _of_suite(operators, Settings(**chosen), device)  # type: ignore[arg-type]
