"""Executor `local`: runs judge processes on the devices of this machine, fed from one queue.

The judges of one device compile and check in parallel and take turns to measure
(``judge_process/measuring_lane.py``). If a judge dies, its job goes back to the queue and a new judge starts. A job
on which several judges die ends as `Unjudged`. If that happens to one job after another, the jobs are not the cause,
and the executor raises an error.
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

_POLL_SECONDS = 10.0
"""Longest time between two turns of the loop, in which silent judges are checked."""
_REST_SECONDS = 60.0
"""A judge that does not start is tried again after this time, while others work."""
_WORKER_SECONDS = {"cpu": 0.2, "cuda": 0.8}
"""Approximate time of another worker for a candidate: its start, its device, loading and warming up the kernel."""
RESTART_SECONDS = {"cpu": 2.0, "cuda": 10.0}
"""A withdrawn job that has run for this long is stopped by ending its judge. On the CPU this is longer than the start
of another judge; for CUDA it is an estimate."""


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
        """Open a session. Its judges start when there is work, and stay."""
        return LocalSession(self._options)


class LocalSession(SessionLoop):
    """A session whose loop gives every idle judge a job and waits for the first message. See `Session`."""

    def __init__(self, options: ExecutorOptions) -> None:
        places = max(1, options.judges_per_device)
        self._judges = [
            JudgeProcess(device, options, place, places) for device in _devices(options) for place in range(places)
        ]
        worker_seconds = _WORKER_SECONDS["cpu" if self._judges[0].device.kind == "cpu" else "cuda"]
        super().__init__(options, JobQueue(heaviest_first=places > 1, worker_seconds=worker_seconds))
        self._worker_setup: WorkerSetup | None = None
        """Set-up of workers that suits every job so far."""
        self._fork_server: ZygoteForkServer | None = None
        self._fork_server_setup: WorkerSetup | None = None
        """The set-up of workers that the fork server was started for."""
        self._idle_since = time.monotonic()
        self._selector = selectors.DefaultSelector()
        self._wakeup = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        """Other threads write to it to end the loop's wait."""
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
        with self._loop_lock:
            if self._wakeup < 0:
                return
            for judge in self._judges:
                judge.close_lifeline()
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
        """Close inherited descriptors in a forked child. The judges still belong to the parent, and end with it."""
        self._closed, self._loop_lock = True, Lock()
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
        """Make one turn: give jobs to judges, start and end judges, wait for messages."""
        for judge in self._judges:
            judge.end_if_stuck()
            self._give_job(judge)
        wait_seconds = self._stop_unwanted()
        self._start_needed()
        self._end_idle()
        for key, _ in self._selector.select(min(wait_seconds, self._wait_seconds())):
            if key.data is None:
                os.eventfd_read(self._wakeup)
            else:
                self._handle_message(key.data)

    def _stop_unwanted(self) -> float:
        """End the judges of withdrawn jobs that have run for longer than another judge takes to start.

        Returns how many seconds to wait before that is the case for the next one.
        """
        soonest = _POLL_SECONDS
        for judge in self._judges:
            taken = None if judge.job is None else self._queue.unwanted_seconds(judge.job)
            if judge.job is None or taken is None or not judge.is_held:
                continue
            left_seconds = RESTART_SECONDS["cpu" if judge.device.kind == "cpu" else "cuda"] - taken
            if left_seconds > 0:
                soonest = min(soonest, left_seconds)
                continue
            self._queue.drop(judge.job)
            self._end(judge)
            judge.job = None
        return soonest

    def _wait_seconds(self) -> float:
        """How long to wait for messages."""
        if self._is_idle():
            return max(0.0, min(_POLL_SECONDS, self._idle_since + self._options.idle_seconds - time.monotonic()))
        return _POLL_SECONDS

    def _is_idle(self) -> bool:
        """Whether there is no work, but a judge that could do some."""
        if self._queue or self._candidates_in_hand():
            self._idle_since = time.monotonic()
            return False
        return any(judge.is_held for judge in self._judges)

    def _start_needed(self) -> None:
        """Start judges while the waiting jobs are more than the free and starting judges."""
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
        judge.stop()  # the earlier process may still be ending
        judge.start(self._worker_setup, self._fork_server_for(self._worker_setup))
        self._selector.register(judge.connection, selectors.EVENT_READ, judge)

    def _fork_server_for(self, setup: WorkerSetup) -> ZygoteForkServer | None:
        """The fork server of all judges, replaced if it does not suit the set-up. None: there is only one judge."""
        if len(self._judges) == 1:
            return None
        if self._fork_server is None or self._fork_server_setup is None or not self._fork_server_setup.covers(setup):
            if self._fork_server is not None:
                self._fork_server.stop()
            self._fork_server, self._fork_server_setup = (
                ZygoteForkServer(self._judges[0].device.kind, setup.preload),
                setup,
            )
        return self._fork_server

    def _end(self, judge: JudgeProcess) -> None:
        """Close the judge's lifeline; it ends by itself."""
        self._selector.unregister(judge.connection)
        judge.close_lifeline()

    def _end_idle(self) -> None:
        """End judges that will get no more work, or have had none for long.

        Devices close slowly, one process at a time, so this is done while other judges still work. If one of those
        dies, a new judge gets its job.
        """
        no_more = self._queue.closed and not self._queue
        too_long = self._is_idle() and time.monotonic() - self._idle_since >= self._options.idle_seconds
        for judge in self._judges:
            if judge.is_held and judge.job is None and (too_long or (no_more and judge.opened)):
                self._end(judge)
                if too_long:
                    judge.stop()

    def _give_job(self, judge: JudgeProcess) -> None:
        """Give a free judge the next job. If its process was set up for other jobs, restart it first."""
        if not judge.opened or judge.job is not None:
            return
        waiting = self._queue.take(judge.last_implementation, self._candidates_in_hand(), judge.cases)
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
        return bool(self._candidates_in_hand())

    def _candidates_in_hand(self) -> set[str]:
        """Candidates of which a judge has a job."""
        return {judge.job.implementation.key for judge in self._judges if judge.job is not None}

    def _handle_message(self, judge: JudgeProcess) -> None:
        """Receive a judge's message, or its end, and react."""
        job = judge.job
        announcement = judge.receive()
        if isinstance(announcement, Judged):
            assert job is not None
            self._answer(job, judge.finish(announcement.record), self._place(judge))
            self._give_job(judge)  # at once, so that the judge need not wait while the caller uses the answer
        elif isinstance(announcement, Closed):
            self._closed_by_itself(judge, error_named(announcement.error, announcement.message))
        elif announcement is None:
            self._died(judge)

    # ---- judges that end

    def _closed_by_itself(self, judge: JudgeProcess, error: errors.TorchstoneError) -> None:
        """Handle a judge that closed because of an error: its job goes to another judge.

        Raises the error if every judge would have it, or no other judge is left.
        """
        lasting = isinstance(error, LASTING)
        if lasting or not self._has_others(judge):
            raise error
        if judge.job is not None:
            self._queue.put_back(judge.job, judge.lost)
        self._pause(judge)

    def _died(self, judge: JudgeProcess) -> None:
        """Handle a judge that died: its job goes back or ends unjudged. A new judge starts when there is work.

        A judge that never starts is paused while there is another one: the memory may suffice for fewer judges.
        """
        job, lost, words = judge.job, judge.lost + 1, judge.exit_message()
        self._end(judge)
        judge.stop()
        if job is None:
            judge.failed_starts += 1
            if judge.failed_starts >= self.most_attempts:
                if not self._has_others(judge):
                    raise errors.InfrastructureError(f"the judge of {judge.device.label} does not start: {words}")
                self._pause(judge)
        elif self._put_back_or_give_up(
            job, lost, f"the judge died {lost} times on this job: {words}", self._place(judge)
        ):
            judge.unjudged_in_a_row.add(job.implementation.key)
            if len(judge.unjudged_in_a_row) >= MOST_UNJUDGED_IN_A_ROW:
                raise errors.InfrastructureError(f"the judge of {judge.device.label} dies on every job: {words}")

    def _place(self, judge: JudgeProcess) -> dict[str, str]:
        return {"device": judge.device.label, **where_on(judge.device, self._options)}

    def _has_others(self, judge: JudgeProcess) -> bool:
        """Whether another judge is running."""
        return any(other.is_held for other in self._judges if other is not judge)

    def _pause(self, judge: JudgeProcess) -> None:
        """End a judge, and do not start it again for some time."""
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
    """Close inherited lifelines in a forked child: a judge ends only when all copies of its lifeline are closed."""
    for session in tuple(_OPEN):
        session.abandon()


os.register_at_fork(after_in_child=_abandon_all)
