"""This machine: judge processes on its devices, fed from one queue.

The judges of one device compile and check in parallel and take turns to measure
(``judge_process/measuring_lane.py``). If a judge dies, its job goes back to the queue and a new judge starts. A job
whose judge dies every time ends as `Unjudged`. If that happens to one job after another, the jobs are not the cause,
and the executor gives up.
"""

from __future__ import annotations

import os
import selectors
import time
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from threading import Lock
from types import TracebackType
from typing import Self

import msgspec

from torchstone import errors
from torchstone.executors.base import Answer, ExecutorOptions, run_in
from torchstone.executors.devices import Device, cpu_slots, find_devices
from torchstone.executors.judge_handle import JudgeProcess, where_on
from torchstone.executors.queue import JobQueue
from torchstone.executors.workload import Workload, workload_of
from torchstone.judge_process.process import Closed, Judged
from torchstone.schema import Isolation, Job, Record, Unjudged, Verdict
from torchstone.supervisor.nursery import Nursery

_MOST_ATTEMPTS = 3
_MOST_UNJUDGED_IN_A_ROW = 3
_LOOK_SECONDS = 10.0
"""How often judges are looked at that say nothing."""
_REST_SECONDS = 60.0
"""A judge that does not start is tried again after this time, while others work."""


class LocalExecutor:
    """Judges on the devices of this machine."""

    def __init__(self, options: ExecutorOptions) -> None:
        self._options = options

    def run(self, jobs: Iterable[Job]) -> Iterator[Record]:
        """Judge every job. Closing the iterator ends every process that was started."""
        listed = tuple(jobs)
        if listed:
            yield from run_in(self.open(), listed)

    def open(self) -> LocalSession:
        """Judges that start when there is work, and stay."""
        return LocalSession(self._options)


class LocalSession:
    """The loop: give every idle judge a job, wait for the first that says something. See `Session`."""

    def __init__(self, options: ExecutorOptions) -> None:
        self._options = options
        places = max(1, options.judges_per_device)
        self._judges = [
            JudgeProcess(device, options, place, places) for device in _devices(options) for place in range(places)
        ]
        self._queue = JobQueue(heaviest_first=places > 1)
        self._workload: Workload | None = None
        """What suits every job that came so far."""
        self._nursery: Nursery | None = None
        self._nursed: Workload | None = None
        self._answers: deque[Answer] = deque()
        self._idle_since = time.monotonic()
        self._turn = Lock()
        """Held by the thread that iterates, while it does."""
        self._closed = False
        self._selector = selectors.DefaultSelector()
        self._wakeup = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        """Written to by other threads, for which the loop would not wake."""
        self._selector.register(self._wakeup, selectors.EVENT_READ)
        _OPEN.add(self)

    def submit(self, jobs: Iterable[Job]) -> None:
        listed = tuple(jobs)
        needed = workload_of(listed)
        self._workload = needed if self._workload is None else self._workload.joined(needed)
        self._queue.put(listed)
        self._wake()

    def withdraw(self, jobs: Iterable[Job]) -> list[Job]:
        return self._queue.withdraw(jobs)

    def finish(self) -> None:
        self._queue.close()
        self._wake()

    def close(self) -> None:
        self._closed = True
        self._wake()
        with self._turn:
            if self._wakeup < 0:
                return
            for judge in self._judges:
                judge.let_go()
            for judge in self._judges:
                judge.stop()
            if self._nursery is not None:
                self._nursery.stop()
            self._close_descriptors()

    def _close_descriptors(self) -> None:
        self._selector.close()
        wakeup, self._wakeup = self._wakeup, -1
        os.close(wakeup)

    def abandon(self) -> None:
        """In a forked child: close what was inherited. The judges stay the parent's, and end with it."""
        self._closed, self._turn = True, Lock()
        for judge in self._judges:
            judge.abandon()
        if self._nursery is not None:
            self._nursery.abandon()
        if self._wakeup >= 0:
            self._close_descriptors()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Answer:
        with self._turn:
            while not self._closed:
                if self._answers:
                    return self._answers.popleft()
                if self._queue.closed and not self._queue and not self._in_hand():
                    break
                self._step()
        raise StopIteration

    def _wake(self) -> None:
        if self._wakeup >= 0:
            os.eventfd_write(self._wakeup, 1)

    # ---- the loop

    def _step(self) -> None:
        """One turn: hand out jobs, start and end judges, wait for news."""
        for judge in self._judges:
            judge.end_if_stuck()
            self._occupy(judge)
        self._start_needed()
        self._dismiss_idle()
        for key, _ in self._selector.select(self._patience()):
            if key.data is None:
                os.eventfd_read(self._wakeup)
            else:
                self._hear(key.data)

    def _patience(self) -> float:
        """How long to wait for news."""
        if self._is_idle():
            return max(0.0, min(_LOOK_SECONDS, self._idle_since + self._options.idle_seconds - time.monotonic()))
        return _LOOK_SECONDS

    def _is_idle(self) -> bool:
        """Whether there is no work, but some judge that could do it."""
        if self._queue or self._in_hand():
            self._idle_since = time.monotonic()
            return False
        return any(judge.is_held for judge in self._judges)

    def _start_needed(self) -> None:
        """Start judges while more jobs wait than judges are free or starting."""
        free = sum(judge.is_held and judge.job is None for judge in self._judges)
        now = time.monotonic()
        for judge in self._judges:
            if free >= len(self._queue):
                return
            if not judge.is_held and judge.rests_until <= now:
                self._start(judge)
                free += 1

    def _start(self, judge: JudgeProcess) -> None:
        assert self._workload is not None
        judge.stop()  # one that was let go may still be ending
        judge.start(self._workload, self._nursery_for(self._workload))
        self._selector.register(judge.connection, selectors.EVENT_READ, judge)

    def _nursery_for(self, workload: Workload) -> Nursery | None:
        """The one that serves all judges; None if there is only one judge."""
        if len(self._judges) == 1:
            return None
        if self._nursery is None or self._nursed is None or not self._nursed.covers(workload):
            if self._nursery is not None:
                self._nursery.stop()
            self._nursery, self._nursed = Nursery(self._judges[0].device.kind, workload.preload), workload
        return self._nursery

    def _end(self, judge: JudgeProcess) -> None:
        """Let go of it; it ends by itself."""
        self._selector.unregister(judge.connection)
        judge.let_go()

    def _dismiss_idle(self) -> None:
        """End judges that will have no more work, or have had none for long.

        Closing a device takes a while, for one process after another, while others still work. If one of those dies,
        its successor has the job.
        """
        no_more = self._queue.closed and not self._queue
        too_long = self._is_idle() and time.monotonic() - self._idle_since >= self._options.idle_seconds
        for judge in self._judges:
            if judge.is_held and judge.job is None and (too_long or (no_more and judge.opened)):
                self._end(judge)
                if too_long:
                    judge.stop()

    def _occupy(self, judge: JudgeProcess) -> None:
        if not judge.opened or judge.job is not None:
            return
        waiting = self._queue.take(judge.last_implementation, self._in_hand(), judge.cases)
        if waiting is None:
            return
        job, lost = waiting
        if judge.device.kind == "cpu" or judge.workload.covers(workload_of((job,))):
            judge.give(job, lost)
            return
        self._queue.put_back(job, lost)  # its process was set up for other jobs: start it again
        self._end(judge)
        self._start(judge)

    def _in_hand(self) -> set[str]:
        """Candidates that some judge is busy with."""
        return {judge.job.implementation.key for judge in self._judges if judge.job is not None}

    def _hear(self, judge: JudgeProcess) -> None:
        job = judge.job
        announcement = judge.hear()
        if isinstance(announcement, Judged):
            assert job is not None
            record = judge.finish(announcement.record)
            given_up = self._queue.judged(job, record.verdict)
            self._occupy(judge)  # before the answer: it does not wait while that is kept
            self._answers.append(Answer(job, record))
            self._answers += (Answer(each, self._without_judge(each, judge.device, why, 0)) for each, why in given_up)
        elif isinstance(announcement, Closed):
            self._closed_by_itself(judge, _error(announcement))
        elif announcement is None:
            self._died(judge)

    # ---- judges that end

    def _closed_by_itself(self, judge: JudgeProcess, error: errors.TorchstoneError) -> None:
        """Its device is gone: others go on with its job. What no judge of this machine can do ends the session."""
        lasting = isinstance(error, errors.UsageError | errors.IsolationUnavailableError)
        if lasting or not self._others_than(judge):
            raise error
        if judge.job is not None:
            self._queue.put_back(judge.job, judge.lost)
        self._rest(judge)

    def _died(self, judge: JudgeProcess) -> None:
        """Its job goes back, or ends unjudged; a new judge starts when there is work.

        One that never starts is not needed as long as there is another: there may be memory for fewer.
        """
        job, lost, words = judge.job, judge.lost + 1, judge.last_words()
        self._end(judge)
        judge.stop()
        if job is None:
            judge.failed_starts += 1
            if judge.failed_starts >= _MOST_ATTEMPTS:
                if not self._others_than(judge):
                    raise errors.InfrastructureError(f"the judge of {judge.device.label} does not start: {words}")
                self._rest(judge)
        elif lost >= _MOST_ATTEMPTS:
            unjudged = Unjudged(f"the judge died {lost} times on this job: {words}")
            self._queue.judged(job, unjudged)
            self._answers.append(Answer(job, self._without_judge(job, judge.device, unjudged, lost)))
            judge.unjudged_in_a_row.add(job.implementation.key)
            if len(judge.unjudged_in_a_row) >= _MOST_UNJUDGED_IN_A_ROW:
                raise errors.InfrastructureError(f"the judge of {judge.device.label} dies on every job: {words}")
        else:
            self._queue.put_back(job, lost)

    def _without_judge(self, job: Job, device: Device, verdict: Verdict, attempts: int) -> Record:
        """The record of a job that no judge has answered."""
        record = Record(
            job_key=job.key,
            case=job.case,
            implementation=job.implementation.reference,
            verdict=verdict,
            manifest_key=self._options.manifest_key,
            device=device.label,
            isolation=Isolation(self._options.isolation),
            attempts=attempts,
            shapes=job.shapes,
        )
        return msgspec.structs.replace(record, **where_on(device, self._options))

    def _others_than(self, judge: JudgeProcess) -> bool:
        return any(other.is_held for other in self._judges if other is not judge)

    def _rest(self, judge: JudgeProcess) -> None:
        if judge.is_held:
            self._end(judge)
        judge.stop()
        judge.failed_starts, judge.rests_until = 0, time.monotonic() + _REST_SECONDS


def _devices(options: ExecutorOptions) -> list[Device]:
    if options.device == "cpu" and options.slots > 1:
        return cpu_slots(options.slots, options.slot)
    return find_devices(options.device)


_OPEN: weakref.WeakSet[LocalSession] = weakref.WeakSet()


def _abandon_all() -> None:
    """A forked child must not keep the judges of its parent alive: a judge ends when the last lifeline closes."""
    for session in tuple(_OPEN):
        session.abandon()


os.register_at_fork(after_in_child=_abandon_all)


def _error(closed: Closed) -> errors.TorchstoneError:
    kind = getattr(errors, closed.error, errors.InfrastructureError)
    return kind(closed.message)
