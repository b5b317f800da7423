"""Executes one run: chooses cases and kernels, judges them, writes every result to the journal, makes the report."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Literal, Protocol, TypeVar

from torchstone import registry
from torchstone.backends import Backend, BackendOptions, Problem
from torchstone.errors import TorchstoneError, UsageError
from torchstone.executors import Executor, ExecutorOptions, Site
from torchstone.runs import folder as folders
from torchstone.runs.choose_cases_and_kernels import choose_cases, problems_of, query_of, require_some
from torchstone.runs.devices import device_type, find_site
from torchstone.runs.failing_verdicts import fails
from torchstone.runs.growing_plan import GrowingPlan
from torchstone.runs.interruption import Interruption
from torchstone.runs.journal import Journal
from torchstone.runs.judge_while_finding_cases import LateCases, arrivals_of
from torchstone.runs.manifest import collect
from torchstone.runs.plan import CASE_RECORDS, JobPlan, Terms
from torchstone.runs.request import RunRequest, check, configuration
from torchstone.runs.suite_machine import suite_at
from torchstone.runs.unused_kernels import unused_kernels
from torchstone.schema import Case, Isolation, Job, Missing, PlannedRun, Record, RunDescription, RunPart, Unjudged
from torchstone.suites import CaseQuery, ListedSuite, Suite, left_out
from torchstone.suites.base import Arrivals
from torchstone.suites.recorded_call_files import identity_of

_MOST_NAMED = 12
"""Most places that one warning names: they fill two lines of a terminal."""

ExecutorFactory = Callable[[ExecutorOptions], Executor]
Ending = Literal["complete", "interrupted", "failed"]


class Observer(Protocol):
    """Receives the events of a run."""

    def preparing(self, done: int, total: int, what: str) -> None:
        """A suite prepares its cases, and ``done`` of ``total`` steps are done."""
        ...

    def planned(self, plan: JobPlan, folder: Path) -> None:
        """The plan is made, and judging is about to begin."""
        ...

    def recorded(self, record: Record) -> None:
        """A record was written to the journal."""
        ...

    def recorded_earlier(self, record: Record) -> None:
        """A case that was found only now already has a record, made by an earlier part of the run."""
        ...

    def fewer(self, count: int) -> None:
        """This many of the planned cases turned out not to exist."""
        ...

    def warned(self, message: str) -> None:
        """Show a warning to the user; the run continues."""
        ...


class SilentObserver:
    """Ignores all events."""

    def preparing(self, done: int, total: int, what: str) -> None:
        pass

    def planned(self, plan: JobPlan, folder: Path) -> None:
        pass

    def recorded(self, record: Record) -> None:
        pass

    def recorded_earlier(self, record: Record) -> None:
        pass

    def fewer(self, count: int) -> None:
        pass

    def warned(self, message: str) -> None:
        pass


class Report(Protocol):
    """The interface of a report: contents by file name. This package does not import `reports`."""

    @property
    def files(self) -> Mapping[str, bytes]: ...


R = TypeVar("R", bound=Report)
Fold = Callable[[tuple[Record, ...], tuple[Problem, ...], RunDescription], R]


@dataclass(frozen=True)
class RunResult(Generic[R]):
    """The result of a run."""

    folder: Path
    report: R
    """The report that was written into the folder."""
    records: tuple[Record, ...]
    interrupted: bool
    """Whether Ctrl-C or SIGTERM ended the run early. Its records are kept."""
    problems: tuple[Problem, ...]
    """Kernels and files that the backend could not use, and kernels that no case uses."""
    left_by_fail_fast: int = 0
    """Number of cases that were not judged because `fail_fast` ended the run; `resume` judges them."""


def execute(
    request: RunRequest,
    observer: Observer,
    report: Fold[R],
    *,
    executor_factory: ExecutorFactory | None = None,
    suite: Suite | None = None,
    backend: Backend | None = None,
) -> RunResult[R]:
    """Carry out the request. Suite, backend and executor are looked up by name unless they are given."""
    request = check(request)
    part = RunPart(time.time_ns(), request.command)
    factory = executor_factory or registry.executors.factory(request.executor)
    site = find_site(factory, _executor_options(request, request.device))
    chosen = _choose(request, site.device, suite or _suite(request, site), backend, observer)
    manifest = collect(configuration(request, site.device), nodes=site.nodes)
    executor = factory(_executor_options(request, site.device, manifest.key))
    if hasattr(executor, "report_to"):
        executor.report_to(observer.warned)
    folder = folders.open_folder(request, manifest)
    with folders.open_journal(folder, CASE_RECORDS) as journal:
        notes = (journal.note, folders.note_circumstances(folder, manifest), *site.warnings)
        run = _RunInFolder(chosen, folder, journal, observer, manifest.key)
        run.keep_plan(part, notes)
        ending = run.judge(executor)
        made = report(journal.records, chosen.problems, RunDescription(folders.read_manifest(folder), run.description))
        folders.save_reports(folder, made.files)
        left = max(run.plan.total - len(journal.records), 0) if ending == "failed" else 0
        return RunResult(folder, made, journal.records, ending == "interrupted", chosen.problems, left)


@dataclass(frozen=True)
class _Chosen:
    """What a run judges: cases and their kernels, and cases that are still to be found."""

    request: RunRequest
    suite: Suite
    query: CaseQuery
    arrivals: Arrivals | None
    """Finds further cases while others are judged; None: all are known."""
    cases: tuple[Case, ...]
    growing: GrowingPlan
    problems: tuple[Problem, ...]
    """Kernels and files that no job can use."""

    def left_out(self) -> Mapping[str, int]:
        """Reasons why the suite makes no case of entries of its source, as far as they are known, with their counts."""
        if self.arrivals is not None and self.growing.awaited:
            return self.arrivals.left_out()
        return left_out(self.suite, self.query)


def _choose(request: RunRequest, device: str, suite: Suite, backend: Backend | None, observer: Observer) -> _Chosen:
    """Choose cases and find the backends' kernels for them."""
    if hasattr(suite, "report_progress_to"):
        suite.report_progress_to(observer.preparing)
    backends = _backends(request, device, backend)
    query = query_of(request, device)
    arrivals = arrivals_of(request, device, suite, query)
    cases = choose_cases(request, device, suite) if arrivals is None else arrivals.ready
    if arrivals is not None and not cases and not arrivals.awaited:
        _tell(observer, _told_left_out(request, arrivals.left_out()))
        require_some(request, cases)
    growing = GrowingPlan(request, device, backends, () if arrivals is None else arrivals.awaited)
    growing.add(cases)
    problems = tuple(
        problem
        for made in backends.values()
        for problem in (*problems_of(made), *unused_kernels(made, request.suite, suite, query, cases))
    )
    return _Chosen(request, suite, query, arrivals, cases, growing, problems)


class _RunInFolder:
    """A run whose folder and journal are open: keeps its plan, then judges it."""

    def __init__(
        self, chosen: _Chosen, folder: Path, journal: Journal[Record], observer: Observer, manifest_key: str
    ) -> None:
        self._chosen, self._folder, self._journal, self._observer = chosen, folder, journal, observer
        self._without = chosen.left_out()
        chosen.growing.begin(manifest_key, journal.records, folder)
        self.plan = chosen.growing.whole()
        self.description: PlannedRun

    def keep_plan(self, part: RunPart, notes: Iterable[str]) -> None:
        """Write the plan into the folder, show the notes of the run, and report the plan."""
        chosen, plan = self._chosen, self.plan
        held = {record.job_key for record in self._journal.records}
        known = plan.keys | held if plan.awaited else plan.keys  # cases that are not found yet may have records, too
        folders.bring_in_order(self._folder, self._journal, known, chosen.growing.implementations(), chosen.problems)
        self.description = folders.keep_plan(self._folder, chosen.growing.counts(), part, self._without)
        own = () if chosen.growing.awaited else _told_left_out(chosen.request, self._without)
        not_found = _told_not_found(chosen.request, chosen.cases)
        _tell(self._observer, (*_told(chosen.problems), *own, not_found, *notes))
        self._observer.planned(plan, self._folder)

    def judge(self, executor: Executor) -> Ending:
        """Judge the plan, and cases that are found meanwhile. Every record is written to the journal."""
        chosen, growing, observer = self._chosen, self._chosen.growing, self._observer
        late = None
        if chosen.arrivals is not None and self.plan.awaited:
            late = LateCases(chosen.arrivals, growing, observer)
        fail_fast = chosen.request.fail_fast
        ending = _judge(executor, self.plan, self._journal, observer, late, fail_fast=fail_fast)
        if late is not None:
            self.plan, self._without = growing.whole(), late.left_out()
            _tell(observer, _told_left_out(chosen.request, self._without))
        counts = growing.counts()
        self.description = folders.end_part(self._folder, self.description, counts, self._without, time.time_ns())
        if late is not None and not self.plan.awaited:
            require_some(chosen.request, growing.cases)
            keys, kernels = self.plan.keys, growing.implementations()
            # `unjudged` cases of this part keep their records, which are part of the result.
            folders.bring_in_order(self._folder, self._journal, keys, kernels, chosen.problems, tries_again=False)
        return ending


def _suite(request: RunRequest, site: Site) -> Suite:
    if request.case is not None:
        return ListedSuite([request.case])
    if site.ask is not None:  # the manifest needs this file's hash, so it must be here
        identity_of(request.source)
    return suite_at(request.suite, request.source, site)


def _backends(request: RunRequest, device: str, given: Backend | None) -> dict[str, Backend]:
    """The backends of the request by name; ``given`` is used instead of a single one."""
    if given is not None:
        if len(request.backends) > 1:
            raise UsageError("a backend object was given for a request with several names. Name one.")
        return {request.backends[0]: given}
    options = BackendOptions(request.kernels_dir, device_type(device))
    factories: dict[str, Callable[[BackendOptions], Backend]] = {
        name: registry.backends.factory(name) for name in request.backends
    }
    return {name: factory(options) for name, factory in factories.items()}


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


def _told(problems: tuple[Problem, ...]) -> tuple[str, ...]:
    """A line for each reason, with some of the kernels that it applies to; the reports name all of them."""
    places: dict[str, list[str]] = {}
    for problem in problems:
        places.setdefault(problem.reason, []).append(problem.where)
    return tuple(f"{_places_named(where)}: {reason}" for reason, where in places.items())


def _places_named(places: list[str]) -> str:
    more = f" and {len(places) - _MOST_NAMED} more" if len(places) > _MOST_NAMED else ""
    return ", ".join(places[:_MOST_NAMED]) + more


def _tell(observer: Observer, notes: Iterable[str]) -> None:
    for note in filter(None, notes):
        observer.warned(note)


def _told_left_out(request: RunRequest, reasons: Mapping[str, int]) -> tuple[str, ...]:
    """A line for each reason why the suite makes no case of an entry of its source, with the number of entries."""
    return tuple(f"suite '{request.suite}' leaves out {count}: {reason}" for reason, count in reasons.items())


def _told_not_found(request: RunRequest, cases: tuple[Case, ...]) -> str:
    """A line if some of the requested case keys match no case now; empty if all do."""
    wanted = set(request.case_keys or ())
    lost = len(wanted - {case.key for case in cases})
    return f"{lost} of the {len(wanted)} cases that failed are left out by other options or the suite." if lost else ""


def _judge(
    executor: Executor,
    plan: JobPlan,
    journal: Journal[Record],
    observer: Observer,
    late: LateCases | None = None,
    *,
    fail_fast: bool,
) -> Ending:
    """Run every job, or those up to the first failure, and write every record to the journal; return how it ended."""
    interruption = Interruption()

    def keep(record: Record) -> None:
        with interruption.held():
            journal.append(record)
            observer.recorded(record)
        interruption.raise_pending()

    with interruption.watching():
        if late is not None:
            answers, waiting = late.answers(executor, plan), late.waiting
        else:
            answers = executor.run(plan.jobs) if plan.jobs else iter(())
            waiting = {job.key: job for job in plan.jobs}
        try:
            for record in _each_once(answers, waiting, plan, observer):
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


def _each_once(
    answers: Iterator[Record], waiting: dict[str, Job], plan: JobPlan, observer: Observer
) -> Iterator[Record]:
    """Yield exactly one record for every job and missing kernel, even if the executor answers twice or not at all.

    ``waiting``: jobs without an answer, by key. It may grow meanwhile.
    """
    yield from plan.missing
    for record in answers:
        if isinstance(record.verdict, Missing):
            yield record  # a case without a kernel, found while others were judged
        elif waiting.pop(record.job_key, None) is None:
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
    """Close the iterator if it can be closed, which stops all work of the executor."""
    close = getattr(answers, "close", None)
    if close is not None:
        close()
