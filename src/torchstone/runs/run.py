"""One run from request to report: the list of verbs that every other way of running things is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import msgspec

from torchstone import registry
from torchstone.backends import Backend, BackendOptions, Problem
from torchstone.errors import TorchstoneError, UsageError, unknown_name
from torchstone.executors import Executor, ExecutorOptions
from torchstone.runs import folder as folders
from torchstone.runs.devices import device_type, resolve_device
from torchstone.runs.interruption import Interruption
from torchstone.runs.journal import Journal
from torchstone.runs.manifest import collect
from torchstone.runs.plan import CASE_RECORDS, Plan, Terms, make_plan
from torchstone.runs.request import RunRequest, check, configuration
from torchstone.schema import (
    Case,
    Implementation,
    Isolation,
    Job,
    Manifest,
    Record,
    SourceFiles,
    Unjudged,
    forward_operator,
    with_problem,
)
from torchstone.suites import CaseQuery, ListedSuite, Suite, left_out, names_operator, select_cases

ExecutorFactory = Callable[[ExecutorOptions], Executor]


class Observer(Protocol):
    """Who watches a run."""

    def preparing(self, done: int, total: int, what: str) -> None:
        """Before there is a plan: a suite that has to find its cases first is this far."""
        ...

    def planned(self, plan: Plan, folder: Path) -> None:
        """The run is about to begin."""
        ...

    def recorded(self, record: Record) -> None:
        """A record is in the journal."""
        ...

    def warned(self, message: str) -> None:
        """Something the user should know; the run goes on."""
        ...


class SilentObserver:
    """Watches and says nothing."""

    def preparing(self, done: int, total: int, what: str) -> None:
        pass

    def planned(self, plan: Plan, folder: Path) -> None:
        pass

    def recorded(self, record: Record) -> None:
        pass

    def warned(self, message: str) -> None:
        pass


class Report(Protocol):
    """What a report must be for a run to write it: texts by file name. Reports are a room beside this one."""

    @property
    def files(self) -> Mapping[str, bytes]: ...


R = TypeVar("R", bound=Report)
Fold = Callable[[tuple[Record, ...], tuple[Problem, ...]], R]


@dataclass(frozen=True)
class RunResult(Generic[R]):
    """What came of a run."""

    folder: Path
    report: R
    """The fold of the records, as it was written into the folder."""
    records: tuple[Record, ...]
    interrupted: bool
    """Ctrl-C or SIGTERM ended it early; what was done is kept."""
    problems: tuple[Problem, ...]
    """What the backend found and could not use."""


def execute(
    request: RunRequest,
    observer: Observer,
    report: Fold[R],
    *,
    executor_factory: ExecutorFactory | None = None,
    suite: Suite | None = None,
    backend: Backend | None = None,
) -> RunResult[R]:
    """Carry out the request. Suite, backend and executor are found by name unless they are given."""
    request = check(request)
    device = resolve_device(request.device)
    suite = suite or _suite(request)
    if hasattr(suite, "report_progress_to"):
        suite.report_progress_to(observer.preparing)
    backend = backend or _backend(request, device)
    cases = choose_cases(request, device, suite)
    offers = choose_implementations(cases, backend)
    problems = problems_of(backend)
    manifest = collect(configuration(request, device))
    executor = (executor_factory or registry.executors.factory(request.executor))(
        _executor_options(request, device, manifest)
    )
    folder = folders.open_folder(request, manifest)
    with folders.open_journal(folder, CASE_RECORDS) as journal:
        notes = (
            *_told(problems),
            *_told_left_out(request, device, suite),
            journal.note,
            folders.note_circumstances(folder, manifest),
        )
        plan = make_plan(cases, offers, _terms(request, device, manifest), journal.records)
        folders.bring_in_order(folder, journal, plan.keys, offers.values(), problems)
        for note in filter(None, notes):
            observer.warned(note)
        observer.planned(plan, folder)
        interrupted = _judge(executor, plan, journal, observer)
        made = report(journal.records, problems)
        folders.save_reports(folder, made.files)
        return RunResult(folder, made, journal.records, interrupted, problems)


def choose_cases(request: RunRequest, device: str, suite: Suite) -> tuple[Case, ...]:
    """The cases that the request selects; every name it gives must select at least one."""
    query = query_of(request, device)
    cases = select_cases(request.suite, suite, query)
    for name in request.operators or ():
        if not any(names_operator(name, case.operator) for case in cases):
            _refuse_operator(name, query, suite)
    if not cases:
        raise UsageError(f"suite '{request.suite}' has no case for this request. Ask for other dtypes or operators.")
    return cases


def query_of(request: RunRequest, device: str) -> CaseQuery:
    """The part of the request that is about cases."""
    return CaseQuery(
        request.operators,
        request.dtypes,
        device_type(device),
        request.source,
        request.largest,
        request.sample,
        request.overhead_dominated,
        request.mode,
    )


def _refuse_operator(name: str, query: CaseQuery, suite: Suite) -> None:
    known = sorted({case.operator for case in suite.cases(msgspec.structs.replace(query, operators=None, dtypes=None))})
    if any(names_operator(name, operator) for operator in known):
        raise UsageError(f"operator '{name}' has no case in {', '.join(query.dtypes or ())}. Ask for other dtypes.")
    raise unknown_name("operator", name, known)


def choose_implementations(cases: tuple[Case, ...], backend: Backend) -> dict[str, Implementation | None]:
    """What the backend offers for each operator of the cases. A gradient is that of what it offers for the operator."""
    by_operator = {case.operator: case for case in reversed(cases)}
    return {operator: _offer(backend, by_operator[operator]) for operator in dict.fromkeys(c.operator for c in cases)}


def _offer(backend: Backend, case: Case) -> Implementation | None:
    offered = backend.implementation(forward_operator(case.operator))
    if offered is None:
        return None
    if case.model is not None:  # what torch itself offers for a model is the model
        solution = offered.origin if isinstance(offered.origin, SourceFiles) else None
        offered = msgspec.structs.replace(offered, origin=with_problem(solution, case.model))
    return msgspec.structs.replace(offered, operator=case.operator)


def problems_of(backend: Backend) -> tuple[Problem, ...]:
    """What the backend could not use; backends that cannot have such problems need no method for them."""
    method = getattr(backend, "problems", None)
    return tuple(method()) if callable(method) else ()


def _suite(request: RunRequest) -> Suite:
    if request.case is not None:
        return ListedSuite([request.case])
    made: Suite = registry.suites.factory(request.suite)()
    return made


def _backend(request: RunRequest, device: str) -> Backend:
    factory: Callable[[BackendOptions], Backend] = registry.backends.factory(request.backend)
    return factory(BackendOptions(request.kernels_dir, device_type(device)))


def _executor_options(request: RunRequest, device: str, manifest: Manifest) -> ExecutorOptions:
    return ExecutorOptions(
        device=device,
        isolation=request.isolation,
        limits=request.limits,
        threads=request.threads,
        manifest_key=manifest.key,
        judges_per_device=request.judges,
    )


def _terms(request: RunRequest, device: str, manifest: Manifest) -> Terms:
    return Terms(
        backend=request.backend,
        effort=request.effort,
        deadlines=request.deadlines,
        measured=request.measured,
        require_authored=request.require_authored,
        cache=request.cache,
        device=device,
        isolation=request.isolation,
        manifest_key=manifest.key,
    )


def _told(problems: tuple[Problem, ...]) -> tuple[str, ...]:
    return tuple(f"{problem.where}: {problem.reason}" for problem in problems)


def _told_left_out(request: RunRequest, device: str, suite: Suite) -> tuple[str, ...]:
    """What the suite's source holds and the run does not, a line for each reason."""
    reasons = left_out(suite, query_of(request, device))
    return tuple(f"suite '{request.suite}' leaves out {count}: {reason}" for reason, count in reasons.items())


def _judge(executor: Executor, plan: Plan, journal: Journal[Record], observer: Observer) -> bool:
    """Run every job and journal every record; whether it was interrupted."""
    interruption = Interruption()

    def keep(record: Record) -> None:
        with interruption.held():
            journal.append(record)
            observer.recorded(record)
        interruption.raise_pending()

    with interruption.watching():
        answers = executor.run(plan.jobs) if plan.jobs else iter(())
        try:
            for record in _each_once(answers, plan, observer):
                keep(record)
        except KeyboardInterrupt:
            return True
        except TorchstoneError:
            folder = journal.path.parent
            kept = f"{len(journal.records)} records are kept in {folder}"
            observer.warned(f"{kept}; go on with --resume --run-id {folder.name}.")
            raise
        finally:
            with interruption.held():
                _close(answers)
    return False


def _each_once(answers: Iterator[Record], plan: Plan, observer: Observer) -> Iterator[Record]:
    """One record for every case that is not done, whatever the executor does."""
    yield from plan.missing
    waiting = {job.key: job for job in plan.jobs}
    for record in answers:
        if waiting.pop(record.job_key, None) is None:
            observer.warned(f"the executor answered job {record.job_key} unasked or twice; that record is left out.")
        else:
            yield record
    for job in waiting.values():
        yield _unanswered(job, plan.terms)


def _unanswered(job: Job, terms: Terms) -> Record:
    return Record(
        job_key=job.key,
        case=job.case,
        implementation=job.implementation.reference,
        verdict=Unjudged("the executor ended without an answer for this job"),
        manifest_key=terms.manifest_key,
        device=terms.device,
        isolation=Isolation(terms.isolation),
    )


def _close(answers: Iterator[Record]) -> None:
    """Stop all work of the executor. A plain iterator has nothing to stop."""
    close = getattr(answers, "close", None)
    if close is not None:
        close()
