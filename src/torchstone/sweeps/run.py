"""Executes one sweep: has kernels judged at the smallest and largest sizes, measures every point, keeps a journal."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from torchstone.atomic_files import cache_folder
from torchstone.errors import UsageError
from torchstone.executors.devices import find_devices
from torchstone.runs import folder as folders
from torchstone.runs.devices import device_type
from torchstone.runs.interruption import Interruption
from torchstone.runs.journal import Journal
from torchstone.runs.manifest import collect
from torchstone.schema import ProfilerResult
from torchstone.schema.sweep import SkippedRow, SweepPoint, SweepRecord, SweepRow, SweepSkip
from torchstone.sweeps import operation_names, rows
from torchstone.sweeps.judging_corners import judge_corners
from torchstone.sweeps.output import OutputFiles, journal_path, skipped_path
from torchstone.sweeps.process import PointProcess
from torchstone.sweeps.process_messages import Open, Opened
from torchstone.sweeps.profile_sweep import profile_sweep, profiles_path
from torchstone.sweeps.request import IDENTITY, SweepRequest, configuration, one_device, point_key, points_of

MOST_DEATHS = 3
"""Deaths of the process on an implementation of an operation after which it is not measured any more."""


_OPTIONS = folders.OptionNames(place="--output", name="--output")


class SweepObserver(Protocol):
    """Receives the progress of a sweep."""

    def preparing(self, done: int, total: int, what: str) -> None:
        """Implementations are judged, before the first point."""
        ...

    def planned(self, plan: SweepPlan, folder: Path) -> None:
        """The sweep is about to begin."""
        ...

    def recorded(self, record: SweepRecord) -> None:
        """A record was written to the journal."""
        ...

    def warned(self, message: str) -> None:
        """A notice for the user; the sweep goes on."""
        ...


@dataclass(frozen=True)
class SweepPlan:
    """All points of a sweep, and the records that an interrupted sweep has left."""

    points: tuple[SweepPoint, ...]
    done: tuple[SweepRecord, ...]

    @property
    def total(self) -> int:
        return len(self.points)

    @property
    def left(self) -> tuple[SweepPoint, ...]:
        held = {record.point for record in self.done}
        return tuple(point for point in self.points if point not in held)


@dataclass(frozen=True)
class SweepResult:
    """The result of a sweep."""

    output: Path
    skipped_output: Path
    records: tuple[SweepRecord, ...]
    """In the order of the grid."""
    interrupted: bool = False
    """Ctrl-C or SIGTERM ended it early; what was done is kept."""
    profiles: tuple[ProfilerResult, ...] = ()
    """Results of the requested profilers."""

    @property
    def rows(self) -> tuple[SweepRow, ...]:
        """A row for every implementation that was timed."""
        return tuple(rows.timed_rows(self.records))

    @property
    def skipped(self) -> tuple[SkippedRow, ...]:
        """A row for every implementation that was not timed, with the reason."""
        return tuple(rows.skipped_rows(self.records))

    @property
    def has_failures(self) -> bool:
        """Whether an implementation was wrong, crashed, raised or took too long."""
        return any(rows.is_failure(row.reason) for row in self.skipped)


def run_sweep(request: SweepRequest, observer: SweepObserver) -> SweepResult:
    """Carry out the request."""
    _refuse_to_overwrite(request)
    device = one_device(request.device)
    with _process(request, device) as process:
        opened = (
            process.open()
        )  # before files of an earlier sweep are deleted, since an operation's file may have an error
        manifest = collect(configuration(request, device), {"inputs": str(request.seed)})
        folder = folders.open_folder(_folder_request(request), manifest, IDENTITY, _OPTIONS)
        interruption = Interruption()
        with folders.open_journal(folder, rows.SWEEP_RECORDS, _OPTIONS) as journal, interruption.watching():
            for note in filter(None, (journal.note, folders.note_circumstances(folder, manifest, _OPTIONS))):
                observer.warned(note)
            sweep = _Sweep(request, device, journal, observer, interruption, process)
            interrupted = False
            try:
                sweep.begin(opened)
                sweep.measure_all()
            except KeyboardInterrupt:
                interrupted = True
            finally:
                with interruption.held():
                    process.close()
                    records = sweep.finish()
    profiles: tuple[ProfilerResult, ...] = ()
    if request.profilers and not interrupted and any(record.timings for record in records):
        opening, into = _opening(request, device), profiles_path(request.output)
        profiles = profile_sweep(opening, records, request.profilers, request.profile_all, into, observer.warned)
    return SweepResult(request.output, skipped_path(request.output), records, interrupted, profiles)


def _refuse_to_overwrite(request: SweepRequest) -> None:
    there = [path for path in (request.output, journal_path(request.output)) if path.exists()]
    if there and not (request.resume or request.overwrite):
        raise UsageError(
            f"{there[0]} exists. Use --resume to go on with that sweep, --overwrite to replace it, or another --output."
        )


@dataclass(frozen=True)
class _FolderRequest:
    run_id: str | None
    resume: bool
    output_dir: Path


def _folder_request(request: SweepRequest) -> _FolderRequest:
    """Where the journal is. Without `resume`, the journal of an earlier sweep into the same file is deleted."""
    path = journal_path(request.output)
    if request.resume and not path.is_dir():
        raise UsageError(f"there is no {path} to go on with. Leave out --resume to start it.")
    if not request.resume and (path / folders.MANIFEST).is_file():
        shutil.rmtree(path)
    return _FolderRequest(path.name, request.resume, path.parent)


def _opening(request: SweepRequest, device: str, last_step_file: str = "") -> Open:
    ceilings = cache_folder("ceilings")
    return Open(
        device_type=device_type(device),
        environment=dict(find_devices(device)[0].environment()),
        folder=str(Path.cwd()),
        files=request.files,
        implementations=request.implementations,
        threads=request.threads,
        seed=request.seed,
        last_step_file=last_step_file,
        ceilings_folder=None if ceilings is None else str(ceilings),
    )


@contextmanager
def _process(request: SweepRequest, device: str) -> Iterator[PointProcess]:
    with tempfile.TemporaryDirectory(prefix="torchstone-sweep-") as scratch:
        opening = _opening(request, device, str(Path(scratch) / "stage"))
        process = PointProcess(opening, compiles="Compile" in request.implementations)
        try:
            yield process
        finally:
            process.close()


class _Sweep:
    """Plans and measures a sweep, and writes its records and files."""

    def __init__(
        self,
        request: SweepRequest,
        device: str,
        journal: Journal[SweepRecord],
        observer: SweepObserver,
        interruption: Interruption,
        process: PointProcess,
    ) -> None:
        self._request, self._device = request, device
        self._journal, self._observer, self._interruption = journal, observer, interruption
        self._process = process
        self._files = OutputFiles(request.output)
        self._plan = SweepPlan((), ())
        self._wanted: dict[str, tuple[str, ...]] = {}
        """Operation -> requested implementations."""
        self._excluded: dict[tuple[str, str], str] = {}
        """(operation, implementation) -> why it is timed at no point."""
        self._deaths: Counter[tuple[str, str]] = Counter()
        self._device_name = ""

    def begin(self, opened: Opened) -> None:
        """Plan the points, warn of missing implementations, and judge the corners."""
        self._device_name = opened.device
        self._wanted = self._find_wanted(opened)
        points = points_of(self._request, self._wanted)
        earlier = [record.point for record in self._journal.records]
        points = (
            *points,
            *(point for point in dict.fromkeys(earlier) if point not in points),
        )  # a smaller grid drops none
        self._journal.compact({point_key(point) for point in points})
        self._plan = SweepPlan(points, self._journal.records)
        self._exclude_missing(opened)
        if self._plan.left and self._request.judged:
            self._judge()
        self._observer.planned(self._plan, self._journal.path.parent)

    def measure_all(self) -> None:
        """Measure all points. Each record is written before the next point begins."""
        for point in self._plan.left:
            record = self._measured(point)
            with self._interruption.held():
                self._journal.append(record)
                self._observer.recorded(record)
                self._files.update(self._records())
            self._interruption.raise_pending()

    def finish(self) -> tuple[SweepRecord, ...]:
        """Write the files a last time. Returns the records in the order of the grid."""
        records = self._records()
        self._files.write(records)
        return records

    def _records(self) -> tuple[SweepRecord, ...]:
        by_point = {record.point: record for record in self._journal.records}
        if not self._plan.points:
            return tuple(by_point.values())
        return tuple(by_point[point] for point in self._plan.points if point in by_point)

    # ---- what is measured

    def _find_wanted(self, opened: Opened) -> dict[str, tuple[str, ...]]:
        own = {operation.file: operation for operation in opened.own}
        wanted: dict[str, tuple[str, ...]] = {}
        for name in self._request.operations:
            if name in own:
                of_torch = [each for each in self._request.implementations if each in ("PyTorch", "Compile")]
                wanted[own[name].name] = tuple(dict.fromkeys((*of_torch, *own[name].implementations)))
            else:
                wanted[name] = self._request.implementations
        return wanted

    def _exclude_missing(self, opened: Opened) -> None:
        """Exclude missing implementations, with one warning for each."""
        built_in = [name for name in self._wanted if name in operation_names.OPERATIONS]
        for implementation, reason in opened.missing.items():
            if built_in:
                self._observer.warned(f"{implementation} is left out: {reason}.")
            for operation in built_in:
                self._excluded[operation, implementation] = f"{rows.MISSING}: {reason}"
        lacked: dict[str, list[str]] = {}
        for operation in built_in:
            for implementation, reason in opened.lacking.get(operation, {}).items():
                key = (operation, implementation)
                if implementation in self._wanted[operation] and key not in self._excluded:
                    self._excluded[key] = f"{rows.MISSING}: {reason}"
                    lacked.setdefault(implementation, []).append(operation)
        for implementation, operations in lacked.items():
            self._observer.warned(f"{implementation} does not have {', '.join(operations)}; it is left out there.")

    def _judge(self) -> None:
        left = {
            operation: [name for name in listed if (operation, name) not in self._excluded]
            for operation, listed in self._wanted.items()
            if operation in operation_names.OPERATIONS
        }
        folder = self._journal.path.parent
        for found in judge_corners(self._request, self._device, left, folder, self._observer):
            self._excluded[found.operation, found.implementation] = found.reason
            self._observer.warned(f"{found.implementation} {found.operation} is not timed: {found.reason}")

    # ---- one point

    def _measured(self, point: SweepPoint) -> SweepRecord:
        skips = {
            name: reason
            for name in self._wanted[point.operation]
            if (reason := self._excluded.get((point.operation, name)))
        }
        record = SweepRecord(point=point, device=self._device_name)
        while left := [name for name in self._wanted[point.operation] if name not in skips]:
            answer = self._process.measure(point, left)
            if isinstance(answer, SweepRecord):
                record = answer
                break
            blamed = [answer.implementation] if answer.implementation in left else left
            skips |= dict.fromkeys(blamed, answer.reason)
            for name in blamed if answer.died else ():
                self._count_death(point.operation, name, answer.reason)
        return _with_skips(record, skips)

    def _count_death(self, operation: str, implementation: str, reason: str) -> None:
        key = (operation, implementation)
        self._deaths[key] += 1
        if self._deaths[key] == MOST_DEATHS:
            self._excluded[key] = f"{reason} (at {MOST_DEATHS} points before; given up)"
            self._observer.warned(f"{implementation} {operation} is given up: {reason}")


def _with_skips(record: SweepRecord, skips: Mapping[str, str]) -> SweepRecord:
    more = tuple(SweepSkip(name, reason) for name, reason in skips.items())
    return msgspec.structs.replace(record, skips=(*record.skips, *more))
