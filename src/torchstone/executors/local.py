"""This machine: judge processes on its devices, fed from one queue.

The judges of one device compile and check in parallel and take turns to measure
(``judge_process/measuring_lane.py``). If a judge dies, its job goes back to the queue and a new judge starts. A job
whose judge dies every time ends as `Unjudged`. If that happens to one job after another, the jobs are not the cause,
and the executor gives up.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import IO, NamedTuple

import msgspec

from torchstone import errors
from torchstone.durable import cache_folder, keeps_kernels_of_torch
from torchstone.executors.base import ExecutorOptions
from torchstone.executors.devices import Device, find_devices
from torchstone.executors.queue import JobQueue
from torchstone.judge_process.process import Announcement, Closed, Judged, JudgeSettings, Opened, receive, send
from torchstone.protocol.environment import FEW_QUEUES, Preload, clean_environment
from torchstone.schema import Isolation, Job, Record, Unjudged, decode
from torchstone.supervisor.nursery import Nursery

_MOST_ATTEMPTS = 3
_MOST_UNJUDGED_IN_A_ROW = 3
_STOP_SECONDS = 10.0
_SILENCE_SECONDS = 600.0
"""A judge at work says so several times a minute, but for its own long computations."""
_LOOK_SECONDS = 10.0


class LocalExecutor:
    """Judges on the devices of this machine."""

    def __init__(self, options: ExecutorOptions) -> None:
        self._options = options

    def run(self, jobs: Iterable[Job]) -> Iterator[Record]:
        """Judge every job. Closing the iterator ends every process that was started."""
        places = max(1, self._options.judges_per_device)
        queue = JobQueue(jobs, heaviest_first=places > 1)
        if not queue:
            return
        devices = find_devices(self._options.device)
        workload = Workload(queue.preload(), few_queues=not queue.measures_with_care())
        nursery = Nursery(devices[0].kind, workload.preload) if places * len(devices) > 1 else None
        judges = [
            JudgeProcess(device, self._options, place, places, nursery, workload)
            for device in devices
            for place in range(places)
        ]
        try:
            for judge in judges:
                judge.start()
            yield from _feed(judges, queue, self._options)
        finally:
            for judge in judges:
                judge.let_go()
            for judge in judges:
                judge.stop()
            if nursery is not None:
                nursery.stop()

    def session(self) -> LocalSession:
        """One judge that is given jobs one by one."""
        return LocalSession(self._options)


class LocalSession:
    """One judge on the first device that was asked for. It starts when the session is entered, and stays."""

    def __init__(self, options: ExecutorOptions) -> None:
        self._options = options
        self._judge = JudgeProcess(find_devices(options.device)[0], options)

    def __enter__(self) -> LocalSession:
        self._judge.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._judge.stop()

    def judge(self, job: Job) -> Record:
        """A judge that dies is replaced, as in a run."""
        (record,) = _feed([self._judge], JobQueue([job]), self._options)
        return record


def _feed(judges: list[JudgeProcess], queue: JobQueue, options: ExecutorOptions) -> Iterator[Record]:
    """Give every idle judge a job, wait for whichever says something first. The judges have been started."""
    with selectors.DefaultSelector() as selector:
        for judge in judges:
            selector.register(judge.connection, selectors.EVENT_READ, judge)
        while queue or any(judge.job is not None for judge in judges):
            for judge in judges:
                judge.end_if_stuck()
                _occupy(judge, judges, queue)
            if not queue:
                _dismiss_idle(judges, selector)
            for key, _ in selector.select(_LOOK_SECONDS):
                judge = key.data
                announcement = judge.hear()
                if isinstance(announcement, Judged):
                    record = judge.finish(announcement.record)
                    _occupy(judge, judges, queue)  # before the record: it does not wait while that is kept
                    yield record
                elif isinstance(announcement, Closed):
                    raise _error(announcement)
                elif announcement is None:
                    selector.unregister(judge.connection)
                    yield from _replace(judge, judges, queue, options)
                    if judge in judges:
                        selector.register(judge.connection, selectors.EVENT_READ, judge)


def _occupy(judge: JudgeProcess, judges: list[JudgeProcess], queue: JobQueue) -> None:
    if judge.opened and judge.job is None and queue:
        judge.give(*queue.take(judge.last_implementation, _in_hand(judges), judge.cases))


def _dismiss_idle(judges: list[JudgeProcess], selector: selectors.BaseSelector) -> None:
    """Nothing is left to hand out: closing a device takes a while, for one process after another, and others still
    work. Should one of those die its successor has the job.
    """
    for judge in judges:
        if judge.opened and judge.job is None:
            selector.unregister(judge.connection)
            judge.let_go()


def _in_hand(judges: list[JudgeProcess]) -> set[str]:
    """Candidates that some judge is busy with."""
    return {judge.job.implementation.key for judge in judges if judge.job is not None}


def _replace(
    judge: JudgeProcess, judges: list[JudgeProcess], queue: JobQueue, options: ExecutorOptions
) -> Iterator[Record]:
    """A judge died: its job goes back, or ends unjudged; a new judge starts. One that never starts is not needed as
    long as there is another on its device: there may be memory for fewer than were tried.
    """
    job, lost = judge.job, judge.lost + 1
    words = judge.last_words()
    if job is None:
        judge.failed_starts += 1
        if judge.failed_starts >= _MOST_ATTEMPTS:
            if any(other.device == judge.device and other.is_held for other in judges if other is not judge):
                judges.remove(judge)
                judge.stop()
                return
            raise errors.InfrastructureError(f"the judge of {judge.device.label} does not start: {words}")
    elif lost >= _MOST_ATTEMPTS:
        yield _unjudged(job, judge.device, options, lost, words)
        judge.unjudged_in_a_row.add(job.implementation.key)
        if len(judge.unjudged_in_a_row) >= _MOST_UNJUDGED_IN_A_ROW:
            raise errors.InfrastructureError(f"the judge of {judge.device.label} dies on every job: {words}")
    else:
        queue.put_back(job, lost)
    judge.stop()
    judge.start()


def _unjudged(job: Job, device: Device, options: ExecutorOptions, lost: int, words: str) -> Record:
    return Record(
        job_key=job.key,
        case=job.case,
        implementation=job.implementation.reference,
        verdict=Unjudged(f"the judge died {lost} times on this job: {words}"),
        manifest_key=options.manifest_key,
        device=device.label,
        isolation=Isolation(options.isolation),
        attempts=lost,
        shapes=job.shapes,
    )


def _error(closed: Closed) -> errors.TorchstoneError:
    kind = getattr(errors, closed.error, errors.InfrastructureError)
    return kind(closed.message)


def _judges_environment(device: Device) -> dict[str, str]:
    return {**clean_environment(os.environ), **device.environment(), **FEW_QUEUES, **keeps_kernels_of_torch()}


class Workload(NamedTuple):
    """What is known of the jobs before the first is judged."""

    preload: Preload = "compiler"
    few_queues: bool = False


class JudgeProcess:
    """One judge: its process, its socket, the job it has."""

    connection: socket.socket

    def __init__(
        self,
        device: Device,
        options: ExecutorOptions,
        place: int = 0,
        places: int = 1,
        nursery: Nursery | None = None,
        workload: Workload | None = None,
    ) -> None:
        """The one at this place among so many of the same device."""
        self.device = device
        self._options = options
        self._place, self._places = place, places
        self._nursery, self._workload = nursery, workload or Workload()
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._lifeline: int | None = None
        self.opened = False
        self.job: Job | None = None
        self.lost = 0
        """Judges that died on the job in hand."""
        self.failed_starts = 0
        self.unjudged_in_a_row: set[str] = set()
        """Implementations: one that can kill the judge must not end the run with three of its cases."""
        self.last_implementation: str | None = None
        self.cases: set[str] = set()
        """That its process has had a job of."""

    def start(self) -> None:
        """Start it; it announces itself when its device is open."""
        self.connection, theirs = socket.socketpair()
        lifeline, self._lifeline = os.pipe()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        variables = {**self.device.environment(), **keeps_kernels_of_torch()}
        zygote = None if self._nursery is None else self._nursery.order(variables)
        passed = [theirs.fileno(), lifeline, *([] if zygote is None else [zygote.fileno()])]
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "torchstone.judge_process.process", *map(str, passed)],
            env=_judges_environment(self.device),
            pass_fds=passed,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )
        theirs.close()
        os.close(lifeline)
        if zygote is not None:
            zygote.close()
        self.opened, self.job, self.lost = False, None, 0
        self.cases = set()
        self._heard, self._stuck = time.monotonic(), False
        options = self._options
        ceilings = cache_folder("ceilings")  # told to the judge, whose own environment knows no home
        charge = JudgeSettings(
            device_type=self.device.kind,
            device_label=self.device.label,
            device_name=self.device.name,
            isolation=options.isolation,
            limits=options.limits,
            threads=options.threads,
            manifest_key=options.manifest_key,
            ceilings_folder=None if ceilings is None else str(ceilings),
            place=self._place,
            places=self._places,
            preload=self._workload.preload,
            few_queues=self._workload.few_queues,
        )
        send(self.connection, charge)

    def hear(self) -> Announcement | None:
        """What the judge says; None if it is gone."""
        try:
            data = receive(self.connection)
        except ConnectionError:
            data = None
        if data is None:
            return None
        self._heard = time.monotonic()
        announcement: Announcement = decode(data, Announcement)  # type: ignore[arg-type]
        if isinstance(announcement, Opened):
            self.opened, self.failed_starts = True, 0
        return announcement

    def give(self, job: Job, lost: int) -> None:
        """Hand over a job. If the judge is gone the next :meth:`hear` says so."""
        self.job, self.lost, self.last_implementation = job, lost, job.implementation.key
        self.cases.add(job.case.key)
        self._heard = time.monotonic()
        with contextlib.suppress(ConnectionError):
            send(self.connection, job)

    def end_if_stuck(self) -> None:
        """Kill one that has a job and has been silent for too long; then the next :meth:`hear` says that it is gone.

        A candidate is asked for nothing that may take longer than the longest of its deadlines.
        """
        if self._process is None or self.job is None or self._stuck:
            return
        longest = max(msgspec.structs.astuple(self.job.deadlines))
        if time.monotonic() - self._heard > _SILENCE_SECONDS + 2 * longest:
            self._stuck = True
            self._process.kill()

    def finish(self, record: Record) -> Record:
        """Take the record of the job in hand."""
        lost, self.job, self.unjudged_in_a_row = self.lost, None, set()
        return msgspec.structs.replace(record, attempts=record.attempts + lost) if lost else record

    def last_words(self) -> str:
        """How it ended and the end of what it printed, in one line."""
        assert self._process is not None
        assert self._log is not None
        try:
            code = self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            code = None
        self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, self._log.tell() - 500))
        text = " ".join(self._log.read().decode("utf-8", "replace").split())
        stuck = "stuck, killed; " if self._stuck else ""
        return f"{stuck}exit code {code}; it printed: {text or 'nothing'}"

    @property
    def is_held(self) -> bool:
        """Whether it has been started, and not been let go since."""
        return self._lifeline is not None

    def let_go(self) -> None:
        """Close its socket and lifeline: it ends, and all its workers with it."""
        if self._process is not None and self._lifeline is not None:
            self.opened = False
            self.connection.close()
            os.close(self._lifeline)
            self._lifeline = None

    def stop(self) -> None:
        """Let go of it and wait until it has ended; if it does not, it is killed."""
        if self._process is None:
            return
        self.let_go()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._log is not None:
            self._log.close()
        self._process = None
