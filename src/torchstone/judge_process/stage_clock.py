"""Tracks the time that a candidate has left in a stage. It stops while another judge measures."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from torchstone import schema
from torchstone.judge_process.candidate_failures import WorkerLostError
from torchstone.judge_process.resources import JudgeResources
from torchstone.supervisor.pausable_worker import PausableWorker
from torchstone.supervisor.worker_failures import OverLimitError

HOUSEKEEPING_SECONDS = 30.0
"""Deadline of commands to a worker that are not the candidate's own work."""
_MOST_IDLE_WAIT_SECONDS = 0.05
"""Time in which the device must become idle after the candidate was paused, for the judge to leave the lane."""
_FIRST_RETRY_SECONDS = 0.02
_MOST_RETRY_SECONDS = 0.5
"""Time until the next try to leave the lane, at first and at most; each failure doubles it. The device may have been
busy with another judge's work, which ends soon."""

T = TypeVar("T")


class StageClock:
    """The time that a candidate has left in its stage, and how long each stage took."""

    def __init__(self, resources: JudgeResources, stage_seconds: dict[str, float]) -> None:
        """``stage_seconds``: gets the duration of each stage."""
        self._resources = resources
        self._stage_seconds = stage_seconds
        self.stage: schema.Stage = "start"
        self.limit_seconds = self._left_seconds = self._left_seconds_at_count = HOUSEKEEPING_SECONDS
        self._next_try, self._retry_seconds = 0.0, _FIRST_RETRY_SECONDS

    @property
    def used_seconds(self) -> float:
        """How much of the stage's time the candidate has used."""
        return self.limit_seconds - self._left_seconds

    def give_back(self, seconds: float) -> None:
        """Give the candidate time back that the judge's own work took."""
        self._left_seconds += seconds

    @property
    def busy_seconds(self) -> float:
        """How much of the stage's time the worker has used since the stage or :meth:`begin_counting` began."""
        return self._left_seconds_at_count - self._left_seconds

    def begin_counting(self) -> None:
        self._left_seconds_at_count = self._left_seconds

    @contextmanager
    def in_stage(self, stage: schema.Stage, limit_seconds: float) -> Iterator[None]:
        """Begin a stage: all commands to the worker inside have this much time together."""
        lane = self._resources.lane
        self.stage, began, waited = stage, time.monotonic(), lane.waited_seconds
        self.limit_seconds = self._left_seconds = self._left_seconds_at_count = limit_seconds
        try:
            yield
        finally:
            before = self._stage_seconds.get(stage, 0.0)
            took = time.monotonic() - began - (lane.waited_seconds - waited)
            self._stage_seconds[stage] = round(before + took, 6)

    def allow(self, worker: PausableWorker, action: Callable[[float], T]) -> T:
        """Run an action of the worker, within the time that is left of the stage. While it is paused so that another
        judge can measure, its time does not run.
        """
        self._resources.signs_of_life += 1
        began = time.monotonic()
        worker.is_urgent = not (self._resources.lane.is_shared and self._resources.shares_device)
        if not self._resources.lane.is_shared:
            try:
                return action(began + self._left_seconds)
            finally:
                self._left_seconds -= time.monotonic() - began
        with worker.polling(lambda: self._pause_for_measurement(worker)) as pauses:
            try:
                return action(began + self._left_seconds)
            finally:
                self._left_seconds -= time.monotonic() - began - pauses.seconds

    def _pause_for_measurement(self, worker: PausableWorker) -> None:
        """If another judge waits to measure, pause the candidate and leave the lane meanwhile.

        Only if the device becomes idle, because it does not stop with the candidate's process. Otherwise the candidate
        goes on, and the other judge waits until a later try succeeds or the candidate is done.
        """
        resources = self._resources
        if time.monotonic() < self._next_try or not resources.lane.is_wanted() or worker.is_in_kernel():
            return
        try:
            worker.freeze()
        except OverLimitError as error:  # it may be inside a driver, for which it is not to blame
            raise WorkerLostError("the worker could not be frozen") from error
        until = time.monotonic() + _MOST_IDLE_WAIT_SECONDS
        while not (is_idle := resources.is_quiet()) and time.monotonic() < until:
            pass
        if is_idle:
            resources.make_way()
            self._retry_seconds = _FIRST_RETRY_SECONDS
        else:
            self._next_try = time.monotonic() + self._retry_seconds
            self._retry_seconds = min(2 * self._retry_seconds, _MOST_RETRY_SECONDS)
        worker.thaw()
