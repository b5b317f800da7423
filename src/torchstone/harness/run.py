"""Executes one run over benchmark pairs: discovers, chooses, plans and runs them, keeps a journal, writes reports."""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import shlex
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from torchstone.atomic_files import write_all_atomically, write_atomically
from torchstone.errors import InfrastructureError, TorchstoneError, UsageError
from torchstone.harness.discovery import Discovery, Pair, Problem, discover
from torchstone.harness.pair_runner import PairOrder, PairRunner
from torchstone.harness.pair_threads import Answer, PairThreads
from torchstone.harness.plan import PAIR_RECORDS, PairsPlan, PlannedPair, make_plan
from torchstone.harness.report import PairsReport, make_report
from torchstone.harness.request import IDENTITY, OUTPUT_DIR, PairsRequest, check, choose_device, configuration
from torchstone.harness.results import BenchmarkResult, Comparison, PairRecord
from torchstone.harness.target_patterns import select_pairs
from torchstone.runs import folder as folders
from torchstone.runs.devices import device_type
from torchstone.runs.earlier import named_run
from torchstone.runs.interruption import Interruption
from torchstone.runs.journal import Journal
from torchstone.runs.manifest import collect
from torchstone.schema import Manifest, decode, encode

PLAN = "plan.json"
SEED = "benchmarks"
"""Name of the run's seed in its manifest."""

_MAX_SHOWN_PROBLEMS = 10
"""Most problems (files) that are named before a run begins. The list command and the reports name all."""

RunnerFactory = Callable[[str], PairRunner]
"""Makes a runner for a device. If the runner has a method `close`, it is called at the end, or to stop it."""


class PairsObserver(Protocol):
    """Receives the progress of a run over pairs."""

    def planned(self, plan: PairsPlan, folder: Path) -> None:
        """The run is about to begin."""
        ...

    def recorded(self, record: PairRecord) -> None:
        """A record was written to the journal."""
        ...

    def warned(self, message: str) -> None:
        """A notice for the user; the run goes on."""
        ...


class StoredPlan(msgspec.Struct, frozen=True):
    """The plan as stored in the run folder, so that a report can name the pairs that were not run."""

    planned: tuple[PlannedPair, ...]
    problems: tuple[Problem, ...] = ()


class StoredPairs(msgspec.Struct, frozen=True):
    """A run over pairs as read from its folder."""

    folder: Path
    report: PairsReport
    note: str
    """Empty, or what was wrong with the end of the journal."""


@dataclass(frozen=True)
class PairsResult:
    """The result of a run."""

    folder: Path
    report: PairsReport
    interrupted: bool
    """Ctrl-C or SIGTERM ended it early; what was done is kept."""
    out_of_time: bool
    """The suite timeout was reached before every pair had begun."""


def local_runner(device: str, tell: Callable[[str], None], profiles: bool = True) -> PairRunner:
    """The runner that starts processes on this machine. Its modules are imported here, not for reports."""
    from torchstone.harness.local_runner import LocalPairRunner
    from torchstone.harness.profiling_step import ProfilingStep

    return LocalPairRunner(device_type(device), profile=ProfilingStep(tell) if profiles else None)


def run_pairs(
    request: PairsRequest, observer: PairsObserver, runner_factory: RunnerFactory | None = None
) -> PairsResult:
    """Carry out the request, on this machine unless a factory makes another runner."""
    began = time.monotonic()
    check(request)
    device = choose_device(request.device)
    found = discover(request.root)
    chosen = _choose(found, request)
    seed = _seed(request)
    manifest = collect(configuration(request, found.root, device), {SEED: str(seed)})
    folder = folders.open_folder(request, manifest, IDENTITY)
    with folders.open_journal(folder, PAIR_RECORDS) as journal:
        _tell_notes(folder, journal, manifest, found, observer)
        plan = make_plan(chosen, found, request, device=device, seed=seed, folder=folder, held=journal.records)
        _prepare_folder(folder, journal, plan)
        observer.planned(plan, folder)
        run = _Run(plan, journal, observer, device, manifest.key)
        until = None if request.suite_timeout_seconds is None else began + request.suite_timeout_seconds
        try:
            make_runner = runner_factory or _runner_for(request, observer)
            interrupted = run.carry_out(make_runner, request.jobs, until)
        finally:
            report = _report(folder, journal.records, plan, observer, request.latest)
    not_run = report.summary.not_run
    if not_run and not interrupted:
        observer.warned(f"the suite timeout ended the run: {_count(not_run)} not run. {how_to_go_on(folder)}")
    return PairsResult(folder, report, interrupted, bool(not_run) and not interrupted)


def _runner_for(request: PairsRequest, observer: PairsObserver) -> RunnerFactory:
    profiles = request.overrides.enable_profiling is not False
    return lambda device: local_runner(device, observer.warned, profiles)


def how_to_go_on(folder: Path) -> str:
    """Text for the user that says how to resume an unfinished run."""
    where = ["--output-dir", str(folder.parent)] if folder.parent != OUTPUT_DIR else []
    return f"Go on with: {shlex.join(['torchstone', 'pairs', 'run', '--resume', '--run-id', folder.name, *where])}"


def find_run(run: Path, output_dir: Path = OUTPUT_DIR) -> Path:
    """The run folder that a user means: a path, or the id of a run below `output_dir`. Raises if there is neither."""
    return named_run(run, output_dir)


def read_pairs(folder: Path) -> StoredPairs:
    """Read a run over pairs, which may be finished, stopped or still running."""
    manifest = folders.read_manifest(folder)
    records, note = folders.read_records(folder, PAIR_RECORDS)
    plan = _read_plan(folder / PLAN, records)
    return StoredPairs(folder, make_report(folder.name, manifest, records, plan.planned, plan.problems), note)


def _read_plan(path: Path, records: tuple[PairRecord, ...]) -> StoredPlan:
    try:
        return decode(path.read_bytes(), StoredPlan)
    except FileNotFoundError:
        fields = ("key", "name", "chapter", "example", "baseline_path", "optimized_path")
        return StoredPlan(tuple(PlannedPair(**{name: getattr(record, name) for name in fields}) for record in records))
    except (OSError, msgspec.DecodeError) as error:
        raise InfrastructureError(f"{path} is damaged ({error}). Delete it.") from error


def _choose(found: Discovery, request: PairsRequest) -> tuple[Pair, ...]:
    if not found.pairs:
        more = f" {len(found.problems)} files could not be paired: 'torchstone pairs list' says why."
        raise UsageError(
            f"there is no pair under {found.root}: no baseline_NAME.py with an optimized_NAME*.py in the same folder."
            + (more if found.problems else "")
        )
    return select_pairs(found.pairs, request.targets)


def _seed(request: PairsRequest) -> int:
    """The seed of this run: the requested one, that of the resumed run, or a new one."""
    asked = request.overrides.seed if request.overrides.seed is not None else request.config.seed
    if asked is not None:
        return asked
    with contextlib.suppress(TorchstoneError, ValueError):
        if request.resume:
            return int(folders.read_manifest(request.output_dir / str(request.run_id)).seeds[SEED])
    return secrets.randbelow(2**31)


def _tell_notes(
    folder: Path, journal: Journal[PairRecord], manifest: Manifest, found: Discovery, observer: PairsObserver
) -> None:
    for note in (journal.note, folders.note_circumstances(folder, manifest)):
        if note:
            observer.warned(note)
    for problem in found.problems[:_MAX_SHOWN_PROBLEMS]:
        observer.warned(f"{problem.path}: {problem.reason}")
    if len(found.problems) > _MAX_SHOWN_PROBLEMS:
        more = len(found.problems) - _MAX_SHOWN_PROBLEMS
        observer.warned(f"{more} more files are in no pair or have an error: 'torchstone pairs list' shows them.")


def _prepare_folder(folder: Path, journal: Journal[PairRecord], plan: PairsPlan) -> None:
    """Move records that the plan does not count out of the journal, store the plan, clear unfinished pairs."""
    with folders.writing_to(folder):
        journal.compact(plan.keys)
        write_atomically(folder / PLAN, encode(StoredPlan(plan.planned, plan.problems)))
        for order in plan.orders:
            shutil.rmtree(order.artifacts, ignore_errors=True)


def _report(
    folder: Path,
    records: tuple[PairRecord, ...],
    plan: PairsPlan,
    observer: PairsObserver,
    latest: Path | None,
) -> PairsReport:
    """Make the report, write its two files, and copy them to the folder `latest`."""
    report = make_report(folder.name, folders.read_manifest(folder), records, plan.planned, plan.problems)
    folders.save_reports(folder, report.files)
    if latest is not None:
        try:
            write_all_atomically(latest, report.files)
        except OSError as error:
            observer.warned(f"the reports are in {folder}, but not in {latest.absolute()}: {error.strerror}.")
    return report


class _Run:
    """Runs the orders of a plan and journals their results."""

    def __init__(
        self, plan: PairsPlan, journal: Journal[PairRecord], observer: PairsObserver, device: str, manifest_key: str
    ) -> None:
        self._plan, self._journal, self._observer = plan, journal, observer
        self._device, self._manifest_key = device, manifest_key
        self._interruption = Interruption()

    def carry_out(self, runner_factory: RunnerFactory, jobs: int, until: float | None) -> bool:
        """Run every order and journal every answer. Returns whether the run was interrupted."""
        if not self._plan.orders:
            return False
        with self._interruption.watching():
            threads: PairThreads | None = None
            try:
                threads = PairThreads(runner_factory(self._device), self._plan.orders, jobs, until)
                for answer in threads.answers():
                    with self._interruption.held():
                        self._keep(answer)
                    self._interruption.raise_pending()
            except KeyboardInterrupt:
                return True
            except TorchstoneError:
                self._observer.warned(f"{_count(len(self._journal.records))} kept. {how_to_go_on(self._folder)}")
                raise
            finally:
                with self._interruption.held():
                    if threads is not None:
                        self._stop_threads(threads)
        return False

    @property
    def _folder(self) -> Path:
        return self._journal.path.parent

    def _stop_threads(self, threads: PairThreads) -> None:
        """Journal the finished answers, then stop the threads."""
        for answer in threads.finished_answers():
            self._keep(answer)
        threads.stop()

    def _keep(self, answer: Answer) -> None:
        """Journal an answer. The caller defers signals until the line is written."""
        record = self._record(answer)
        self._journal.append(record)
        self._observer.recorded(record)

    def _record(self, answer: Answer) -> PairRecord:
        pair, order = self._plan.pairs[answer.place], self._plan.orders[answer.place]
        planned = next(each for each in self._plan.planned if each.key == pair.key)
        error = "" if answer.error is None else f"{type(answer.error).__name__}: {answer.error}"
        made = PairRecord(
            key=pair.key,
            chapter=pair.chapter,
            example=pair.example,
            variant=pair.variant,
            baseline_path=planned.baseline_path,
            optimized_path=planned.optimized_path,
            comparison=answer.comparison or _no_comparison(order, error),
            device=self._device,
            manifest_key=self._manifest_key,
            finished_unix_ns=time.time_ns(),
            seconds=answer.seconds,
            harness_error=error,
        )
        return _writable(self._with_short_paths(made), order)

    def _with_short_paths(self, record: PairRecord) -> PairRecord:
        """The record with paths relative to the run's folder, which may be moved."""
        sides = {}
        for name in ("baseline", "optimized"):
            side: BenchmarkResult = getattr(record.comparison, name)
            files = {kind: os.path.relpath(path, self._folder) for kind, path in side.artifacts.items()}
            sides[name] = msgspec.structs.replace(side, artifacts=files)
        return msgspec.structs.replace(record, comparison=msgspec.structs.replace(record.comparison, **sides))


def _writable(record: PairRecord, order: PairOrder) -> PairRecord:
    """The record if it can be written as JSON and read again; else a failed record with the reason."""
    sides = {side: _finite_metrics(getattr(record.comparison, side)) for side in ("baseline", "optimized")}
    record = msgspec.structs.replace(record, comparison=msgspec.structs.replace(record.comparison, **sides))
    try:
        decode(encode(record), PairRecord)
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
        reason = f"the result cannot be kept as JSON: {error}"
        lost = _no_comparison(order, reason)
        return msgspec.structs.replace(record, comparison=lost, harness_error=reason)
    return record


def _finite_metrics(side: BenchmarkResult) -> BenchmarkResult:
    """The result without NaN or infinite metrics, which JSON cannot hold: they become notes."""
    odd = {name: value for name, value in side.custom_metrics.items() if not math.isfinite(value)}
    if not odd:
        return side
    return msgspec.structs.replace(
        side,
        custom_metrics={name: value for name, value in side.custom_metrics.items() if name not in odd},
        notes=(*side.notes, *(f"custom metric '{name}' is {value} and left out" for name, value in odd.items())),
    )


def _no_comparison(order: PairOrder, error: str) -> Comparison:
    failed = BenchmarkResult(status="failed", errors=(f"the harness failed, not the benchmark: {error}",))
    return Comparison(name=order.name, baseline=failed, optimized=failed)


def _count(number: int) -> str:
    return f"{number} pair is" if number == 1 else f"{number} pairs are"
