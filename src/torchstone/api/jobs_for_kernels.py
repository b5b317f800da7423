"""Turns kernels and settings into jobs (one kernel on one case each): selects the cases of each kernel.

A :class:`Submission` holds the jobs of one kernel and the future of its evaluation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, get_args

from torchstone import registry
from torchstone.api.evaluation import Evaluation
from torchstone.api.operator_argument import OperatorName, is_full, written_name
from torchstone.api.settings import Settings, request_of
from torchstone.backends import Backend, Problem
from torchstone.errors import UsageError, unknown_name
from torchstone.executors import Ticket, ticket_of
from torchstone.runs.choose_cases_and_kernels import choose_cases, choose_implementations, query_of
from torchstone.runs.plan import Terms, make_plan
from torchstone.runs.unused_kernels import unused_kernels
from torchstone.schema import Case, Implementation, Job, Record, forward_operator
from torchstone.suites import ListedSuite, names_operator, select_cases

Purpose = Literal["check", "measure", "evaluate"]
"""`check`: nothing is timed. `measure`: only timed cases. `evaluate`: all cases, and timed cases are timed."""


@dataclass(frozen=True, eq=False)
class Submission:
    """One kernel with its jobs, and the future of its evaluation."""

    operator: str
    jobs: tuple[Job, ...]
    future: Future[Evaluation] = field(default_factory=Future)
    records: dict[Ticket, Record] = field(default_factory=dict)
    """The records so far."""
    keep: Callable[[Evaluation], None] | None = None
    """Stores the evaluation. Called before the future gets it, so that it is stored when the caller has it."""

    @property
    def is_complete(self) -> bool:
        return len(self.records) == len(self.jobs)

    def evaluation(self) -> Evaluation:
        """The records in the order of the jobs."""
        return Evaluation(self.operator, tuple(self.records[ticket_of(job)] for job in self.jobs))

    def resolve(self) -> None:
        """Set the evaluation as the future's result, unless the future was cancelled."""
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
    """A backend that offers one kernel for every operator."""

    def __init__(self, implementation: Implementation) -> None:
        self._implementation = implementation

    def implementation(self, operator: str) -> Implementation | None:
        return self._implementation


def submissions_for(
    offered: Mapping[str, Implementation], settings: Settings, device: str, purpose: Purpose
) -> dict[str, Submission]:
    """A submission for each operator. Cases of all operators are selected in one step: some suites prepare them."""
    if purpose not in get_args(Purpose):
        raise UsageError(f"purpose is {purpose!r}; it must be one of {', '.join(get_args(Purpose))}.")
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
    """The operator of these cases, for a caller that named none. Raises UsageError if there is not exactly one."""
    if cases is None:
        raise UsageError("no operator is given. Name it: submit(kernel, 'aten.relu.default').")
    names = sorted({forward_operator(case.operator) for case in cases})
    if len(names) != 1:
        listed = ", ".join(names) or "none"
        raise UsageError(
            f"no operator is given, and the cases are not of one operator ({listed}). Name the one to judge."
        )
    return names[0]


def operator_named(operator: OperatorName, settings: Settings, device: str) -> str:
    """The full name of the overload. Raises UsageError if a short name fits no operator with cases, or several."""
    name = written_name(operator)
    if is_full(name):
        return name
    candidates = sorted({forward_operator(case.operator) for case in _cases((name,), settings, device)})
    if not candidates:
        raise unknown_name("operator", name, {forward_operator(case.operator) for case in settings.cases or ()})
    if len(candidates) > 1:
        raise UsageError(f"operator '{name}' may be any of {', '.join(candidates)}. Write one of these.")
    return candidates[0]


def has_cases(operator: str, settings: Settings, device: str) -> bool:
    """Whether there is a case of this operator."""
    try:
        return bool(_cases((operator,), settings, device))
    except UsageError:
        return False


def require_cases(operators: tuple[str, ...], settings: Settings, device: str) -> None:
    """Raise UsageError unless each name is that of an operator with cases."""
    _cases(operators, settings, device)


def unused_in(backend: Backend, settings: Settings, device: str) -> tuple[Problem, ...]:
    """Kernels of the backend for which the suite has no case, each with the reason."""
    suite = registry.suites.factory(settings.suite)()
    return unused_kernels(backend, settings.suite, suite, query_of(request_of(settings), device), ())


def _cases(operators: tuple[str, ...], settings: Settings, device: str) -> tuple[Case, ...]:
    if settings.cases is not None:
        query = query_of(request_of(settings, operators), device)
        return select_cases("cases", ListedSuite(settings.cases), query)
    if settings.source is not None:  # a file, which may change
        return _suite_cases(operators, settings, device)
    chosen = ("suite", "dtypes", "largest", "sample", "mode")
    return _cached_cases(operators, device, **{name: getattr(settings, name) for name in chosen})


def _suite_cases(operators: tuple[str, ...], settings: Settings, device: str) -> tuple[Case, ...]:
    suite = registry.suites.factory(settings.suite)()
    return choose_cases(request_of(settings, operators), device, suite)


@lru_cache(maxsize=64)
def _cached_cases(operators: tuple[str, ...], device: str, **chosen: object) -> tuple[Case, ...]:
    """As `_suite_cases`, cached. For suites whose cases do not change while the program runs."""
    return _suite_cases(operators, Settings(**chosen), device)  # type: ignore[arg-type]
