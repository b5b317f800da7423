"""One run from request to report: choose cases and implementations, plan, judge, journal, report."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Literal, Protocol, TypeVar

import msgspec

from torchstone import registry
from torchstone.backends import Backend, BackendOptions, Problem
from torchstone.errors import TorchstoneError, UsageError, unknown_name
from torchstone.executors import Executor, ExecutorOptions, Site
from torchstone.runs import folder as folders
from torchstone.runs.devices import device_type, find_site, has_device
from torchstone.runs.failing import fails
from torchstone.runs.interruption import Interruption
from torchstone.runs.journal import Journal
from torchstone.runs.manifest import collect
from torchstone.runs.plan import CASE_RECORDS, JobPlan, Terms, join, make_plan, planned_cases
from torchstone.runs.request import RunRequest, check, configuration
from torchstone.runs.unused_kernels import unused_kernels
from torchstone.schema import (
    Case,
    Implementation,
    Isolation,
    Job,
    Manifest,
    Record,
    RunDescription,
    RunPart,
    SourceFiles,
    Unjudged,
    forward_operator,
    is_gradient,
    with_problem,
)
from torchstone.suites import CaseQuery, ListedSuite, Suite, left_out, names_operator, operators_of, select_cases
from torchstone.suites.at_node import SuiteAtNode

_MOST_NAMED = 12
"""Places that one warning names: two lines of a terminal."""

ExecutorFactory = Callable[[ExecutorOptions], Executor]
Ending = Literal["complete", "interrupted", "failed"]


class Observer(Protocol):
    """Receives the events of a run."""

    def preparing(self, done: int, total: int, what: str) -> None:
        """A suite prepares its cases: this far."""
        ...

    def planned(self, plan: JobPlan, folder: Path) -> None:
        """The run is about to begin."""
        ...

    def recorded(self, record: Record) -> None:
        """A record is in the journal."""
        ...

    def warned(self, message: str) -> None:
        """Something the user should know; the run goes on."""
        ...


class SilentObserver:
    """Ignores all events."""

    def preparing(self, done: int, total: int, what: str) -> None:
        pass

    def planned(self, plan: JobPlan, folder: Path) -> None:
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
Fold = Callable[[tuple[Record, ...], tuple[Problem, ...], RunDescription], R]
Offers = dict[str, Implementation | None]
"""What a backend offers, by operator."""


@dataclass(frozen=True)
class RunResult(Generic[R]):
    """The result of a run."""

    folder: Path
    report: R
    """The report, as it was written into the folder."""
    records: tuple[Record, ...]
    interrupted: bool
    """Ctrl-C or SIGTERM ended it early; what was done is kept."""
    problems: tuple[Problem, ...]
    """What the backend found and could not use, and kernels that no case uses."""
    left_by_fail_fast: int = 0
    """Cases that were not judged because `fail_fast` ended the run; `resume` judges them."""


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
    part = RunPart(time.time_ns(), request.command)
    factory = executor_factory or registry.executors.factory(request.executor)
    site = find_site(factory, _executor_options(request, request.device))
    device = site.device
    suite = suite or _suite(request, site)
    if hasattr(suite, "report_progress_to"):
        suite.report_progress_to(observer.preparing)
    backends = _backends(request, device, backend)
    cases = choose_cases(request, device, suite)
    offers = {name: _named(name, choose_implementations(cases, made), backends) for name, made in backends.items()}
    query = query_of(request, device)
    problems = tuple(
        problem
        for made in backends.values()
        for problem in (*problems_of(made), *unused_kernels(made, request.suite, suite, query, cases))
    )
    manifest = collect(configuration(request, device), nodes=site.nodes)
    executor = factory(_executor_options(request, device, manifest.key))
    if hasattr(executor, "report_to"):
        executor.report_to(observer.warned)
    folder = folders.open_folder(request, manifest)
    with folders.open_journal(folder, CASE_RECORDS) as journal:
        notes = (
            *_told(problems),
            *_told_left_out(request, device, suite),
            _told_not_found(request, cases),
            journal.note,
            folders.note_circumstances(folder, manifest),
        )
        plans = [
            make_plan(cases, offered, _terms(request, name, device, manifest), journal.records)
            for name, offered in offers.items()
        ]
        plan = join(plans)
        folders.bring_in_order(folder, journal, plan.keys, _implementations(offers), problems)
        planned = folders.keep_plan(folder, planned_cases(plans), part)
        for note in filter(None, notes):
            observer.warned(note)
        observer.planned(plan, folder)
        ending = _judge(executor, plan, journal, observer, fail_fast=request.fail_fast)
        planned = folders.end_part(folder, planned, time.time_ns())
        first = folders.read_manifest(folder)
        made = report(journal.records, problems, RunDescription(first, planned))
        folders.save_reports(folder, made.files)
        left = max(plan.total - len(journal.records), 0)
        return RunResult(
            folder, made, journal.records, ending == "interrupted", problems, left if ending == "failed" else 0
        )


def choose_cases(request: RunRequest, device: str, suite: Suite) -> tuple[Case, ...]:
    """The cases that the request selects; every name it gives must select at least one."""
    query = query_of(request, device)
    cases = select_cases(request.suite, suite, query)
    for name in request.operators or ():
        if not any(names_operator(name, case.operator) for case in cases):
            _refuse_operator(name, query, suite, request.suite)
    if not cases:
        raise UsageError(_no_case(request))
    return cases


def _no_case(request: RunRequest) -> str:
    if request.case_keys is not None:
        return (
            f"no case that failed ({len(request.case_keys)}) is in this selection of suite '{request.suite}'. "
            "Ask with the options of that run, or leave out --last-failed."
        )
    if request.expression is not None:
        return (
            f"no case of suite '{request.suite}' fits -k '{request.expression}'. Its words must be parts of an "
            f"operator's name or of arguments; 'torchstone list operators --suite {request.suite}' lists operators."
        )
    return f"suite '{request.suite}' has no case for this request. Ask for other dtypes or operators."


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
        expression=request.expression,
        keys=request.case_keys,
    )


def _refuse_operator(name: str, query: CaseQuery, suite: Suite, suite_name: str) -> None:
    """Raises, unless the suite has cases of the operator that only an expression or keys leave out."""
    if any(names_operator(name, case.operator) for case in suite.cases(query)):
        return
    known = operators_of(suite, msgspec.structs.replace(query, operators=None, dtypes=None))
    if any(names_operator(name, operator) for operator in known):
        dtypes = f" in {', '.join(query.dtypes)}" if query.dtypes else ""
        raise UsageError(f"operator '{name}' has no case{dtypes}. Ask for other dtypes or operators.")
    raise unknown_name("operator", name, known, f"'torchstone list operators --suite {suite_name}'")


def choose_implementations(cases: tuple[Case, ...], backend: Backend) -> Offers:
    """What the backend offers for each operator of the cases. A gradient is that of what it offers for the operator."""
    by_operator = {case.operator: case for case in reversed(cases)}
    return {operator: _offer(backend, by_operator[operator]) for operator in dict.fromkeys(c.operator for c in cases)}


def _offer(backend: Backend, case: Case) -> Implementation | None:
    offer: Callable[[str], Implementation | None] = backend.implementation
    if is_gradient(case.operator):  # some backends offer something else to be differentiated than to be called
        offer = getattr(backend, "differentiable", offer)
    offered = offer(forward_operator(case.operator))
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


def _suite(request: RunRequest, site: Site) -> Suite:
    if request.case is not None:
        return ListedSuite([request.case])
    if site.ask is not None and not has_device(site.device):
        return SuiteAtNode(request.suite, site.ask)
    made: Suite = registry.suites.factory(request.suite)()
    return made


def _backends(request: RunRequest, device: str, given: Backend | None) -> dict[str, Backend]:
    """The backends of the request by name; `given` stands for a single one."""
    if given is not None:
        if len(request.backends) > 1:
            raise UsageError("a backend object was given for a request with several names. Name one.")
        return {request.backends[0]: given}
    options = BackendOptions(request.kernels_dir, device_type(device))
    factories: dict[str, Callable[[BackendOptions], Backend]] = {
        name: registry.backends.factory(name) for name in request.backends
    }
    return {name: factory(options) for name, factory in factories.items()}


def _named(backend: str, offers: Offers, all_backends: Mapping[str, Backend]) -> Offers:
    """Where several backends are compared, each implementation bears the name under which its backend was asked for."""
    if len(all_backends) == 1:
        return offers
    return {
        operator: None if offer is None else msgspec.structs.replace(offer, backend=backend)
        for operator, offer in offers.items()
    }


def _implementations(offers: Mapping[str, Offers]) -> Iterator[Implementation | None]:
    return (offer for offered in offers.values() for offer in offered.values())


def _executor_options(request: RunRequest, device: str, manifest_key: str = "") -> ExecutorOptions:
    return ExecutorOptions(
        device=device,
        isolation=request.isolation,
        limits=request.limits,
        threads=request.threads,
        manifest_key=manifest_key,
        judges_per_device=request.judges,
        results=request.results,
        address=request.ray_address,
        gpu=request.gpu,
    )


def _terms(request: RunRequest, backend: str, device: str, manifest: Manifest) -> Terms:
    return Terms(
        backend=backend,
        effort=request.effort,
        deadlines=request.deadlines,
        measured=request.measured,
        require_authored=request.require_authored,
        cache=request.cache,
        shapes=request.shapes,
        non_finite=request.non_finite,
        try_every_case=request.try_every_case,
        baseline=request.baseline,
        device=device,
        isolation=request.isolation,
        manifest_key=manifest.key,
    )


def _told(problems: tuple[Problem, ...]) -> tuple[str, ...]:
    """A line for each reason. Many kernels may share one; the reports name them all."""
    places: dict[str, list[str]] = {}
    for problem in problems:
        places.setdefault(problem.reason, []).append(problem.where)
    return tuple(f"{_places_named(where)}: {reason}" for reason, where in places.items())


def _places_named(places: list[str]) -> str:
    more = f" and {len(places) - _MOST_NAMED} more" if len(places) > _MOST_NAMED else ""
    return ", ".join(places[:_MOST_NAMED]) + more


def _told_left_out(request: RunRequest, device: str, suite: Suite) -> tuple[str, ...]:
    """What the suite's source holds and the run does not, a line for each reason."""
    reasons = left_out(suite, query_of(request, device))
    return tuple(f"suite '{request.suite}' leaves out {count}: {reason}" for reason, count in reasons.items())


def _told_not_found(request: RunRequest, cases: tuple[Case, ...]) -> str:
    """That some of the keys asked for are no cases now; empty if all are."""
    wanted = set(request.case_keys or ())
    lost = len(wanted - {case.key for case in cases})
    return f"{lost} of the {len(wanted)} cases that failed are left out by other options or the suite." if lost else ""


def _judge(
    executor: Executor, plan: JobPlan, journal: Journal[Record], observer: Observer, *, fail_fast: bool
) -> Ending:
    """Run every job, or those up to the first failure, and journal every record; how it ended."""
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
                if fail_fast and fails(record.verdict):
                    return "failed"
        except KeyboardInterrupt:
            return "interrupted"
        except TorchstoneError:
            folder = journal.path.parent
            kept = f"records kept in {folder}: {len(journal.records)}"
            observer.warned(f"{kept}; go on with: {folders.resuming_command(folder)}")
            raise
        finally:
            with interruption.held():
                _close(answers)
    return "complete"


def _each_once(answers: Iterator[Record], plan: JobPlan, observer: Observer) -> Iterator[Record]:
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
        shapes=job.shapes,
    )


def _close(answers: Iterator[Record]) -> None:
    """Stop all work of the executor. A plain iterator has nothing to stop."""
    close = getattr(answers, "close", None)
    if close is not None:
        close()
