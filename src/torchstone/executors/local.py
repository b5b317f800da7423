"""Executor `local`: runs judge processes on the devices of this machine, fed from one queue.

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
from collections.abc import Iterable, Iterator
from threading import Lock

from torchstone import errors
from torchstone.executors.base import ExecutorOptions, run_in
from torchstone.executors.devices import Device, cpu_slots, find_devices
from torchstone.executors.judge_handle import JudgeProcess, where_on
from torchstone.executors.queue import JobQueue
from torchstone.executors.session_loop import LASTING, MOST_UNJUDGED_IN_A_ROW, SessionLoop, error_named
from torchstone.executors.worker_setup_for_jobs import WorkerSetup, worker_setup_for
from torchstone.judge_process.process import Closed, Judged
from torchstone.schema import Job, Record
from torchstone.supervisor.zygote_fork_server import ZygoteForkServer

_LOOK_SECONDS = 10.0
"""How often judges are looked at that say nothing."""
_REST_SECONDS = 60.0
"""A judge that does not start is tried again after this time, while others work."""
_WORKER_SECONDS = {"cpu": 0.2, "cuda": 0.8}
"""About what another worker for a candidate costs: its start, its device, and loading and warming up the kernel."""
RESTART_SECONDS = {"cpu": 2.0, "cuda": 10.0}
"""After so long a withdrawn job is stopped by ending its judge. More than starting another judge takes on the CPU; for
CUDA an estimate."""


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


class LocalSession(SessionLoop):
    """The loop: give every idle judge a job, wait for the first that says something. See `Session`."""

    def __init__(self, options: ExecutorOptions) -> None:
        places = max(1, options.judges_per_device)
        self._judges = [
            JudgeProcess(device, options, place, places) for device in _devices(options) for place in range(places)
        ]
        worker_seconds = _WORKER_SECONDS["cpu" if self._judges[0].device.kind == "cpu" else "cuda"]
        super().__init__(options, JobQueue(heaviest_first=places > 1, worker_seconds=worker_seconds))
        self._worker_setup: WorkerSetup | None = None
        """What suits every job that came so far."""
        self._fork_server: ZygoteForkServer | None = None
        self._nursed: WorkerSetup | None = None
        self._idle_since = time.monotonic()
        self._selector = selectors.DefaultSelector()
        self._wakeup = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        """Written to by other threads, for which the loop would not wake."""
        self._selector.register(self._wakeup, selectors.EVENT_READ)
        _OPEN.add(self)

    def submit(self, jobs: Iterable[Job]) -> None:
        listed = tuple(jobs)
        needed = worker_setup_for(listed)
        self._worker_setup = needed if self._worker_setup is None else self._worker_setup.joined(needed)
        super().submit(listed)

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
            if self._fork_server is not None:
                self._fork_server.stop()
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
        if self._fork_server is not None:
            self._fork_server.abandon()
        if self._wakeup >= 0:
            self._close_descriptors()

    def _wake(self) -> None:
        if self._wakeup >= 0:
            os.eventfd_write(self._wakeup, 1)

    # ---- the loop

    def _step(self) -> None:
        """One turn: hand out jobs, start and end judges, wait for news."""
        for judge in self._judges:
            judge.end_if_stuck()
            self._occupy(judge)
        patience = self._stop_unwanted()
        self._start_needed()
        self._dismiss_idle()
        for key, _ in self._selector.select(min(patience, self._patience())):
            if key.data is None:
                os.eventfd_read(self._wakeup)
            else:
                self._hear(key.data)

    def _stop_unwanted(self) -> float:
        """End the judges of jobs that were withdrawn, if these take longer than starting others.

        Returns how long to wait before the next is due.
        """
        soonest = _LOOK_SECONDS
        for judge in self._judges:
            taken = None if judge.job is None else self._queue.unwanted_seconds(judge.job)
            if judge.job is None or taken is None or not judge.is_held:
                continue
            left = RESTART_SECONDS["cpu" if judge.device.kind == "cpu" else "cuda"] - taken
            if left > 0:
                soonest = min(soonest, left)
                continue
            self._queue.drop(judge.job)
            self._end(judge)
            judge.job = None
        return soonest

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
        assert self._worker_setup is not None
        judge.stop()  # one that was let go may still be ending
        judge.start(self._worker_setup, self._fork_server_for(self._worker_setup))
        self._selector.register(judge.connection, selectors.EVENT_READ, judge)

    def _fork_server_for(self, setup: WorkerSetup) -> ZygoteForkServer | None:
        """The one that serves all judges; None if there is only one judge."""
        if len(self._judges) == 1:
            return None
        if self._fork_server is None or self._nursed is None or not self._nursed.covers(setup):
            if self._fork_server is not None:
                self._fork_server.stop()
            self._fork_server, self._nursed = ZygoteForkServer(self._judges[0].device.kind, setup.preload), setup
        return self._fork_server

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
        if judge.device.kind == "cpu" or judge.worker_setup.covers(worker_setup_for((job,))):
            judge.give(job, lost)
            return
        self._queue.put_back(job, lost)  # its process was set up for other jobs: start it again
        self._end(judge)
        self._start(judge)

    def _has_in_hand(self) -> bool:
        return bool(self._in_hand())

    def _in_hand(self) -> set[str]:
        """Candidates that some judge is busy with."""
        return {judge.job.implementation.key for judge in self._judges if judge.job is not None}

    def _hear(self, judge: JudgeProcess) -> None:
        job = judge.job
        announcement = judge.hear()
        if isinstance(announcement, Judged):
            assert job is not None
            self._answer(job, judge.finish(announcement.record), self._place(judge))
            self._occupy(judge)  # before the loop goes on: it does not wait while the answer is kept
        elif isinstance(announcement, Closed):
            self._closed_by_itself(judge, error_named(announcement.error, announcement.message))
        elif announcement is None:
            self._died(judge)

    # ---- judges that end

    def _closed_by_itself(self, judge: JudgeProcess, error: errors.TorchstoneError) -> None:
        """Its device is gone: others go on with its job. What no judge of this machine can do ends the session."""
        lasting = isinstance(error, LASTING)
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
            if judge.failed_starts >= self.most_attempts:
                if not self._others_than(judge):
                    raise errors.InfrastructureError(f"the judge of {judge.device.label} does not start: {words}")
                self._rest(judge)
        elif self._put_back_or_give_up(
            job, lost, f"the judge died {lost} times on this job: {words}", self._place(judge)
        ):
            judge.unjudged_in_a_row.add(job.implementation.key)
            if len(judge.unjudged_in_a_row) >= MOST_UNJUDGED_IN_A_ROW:
                raise errors.InfrastructureError(f"the judge of {judge.device.label} dies on every job: {words}")

    def _place(self, judge: JudgeProcess) -> dict[str, str]:
        return {"device": judge.device.label, **where_on(judge.device, self._options)}

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
