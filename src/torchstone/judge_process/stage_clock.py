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
"""For what the judge asks of a worker besides the candidate's own work."""
_QUIET_WITHIN_SECONDS = 0.05
"""What a candidate has begun on the device before it was made to stand still must be over by then."""
_FIRST_PATIENCE_SECONDS = 0.02
_MOST_PATIENCE_SECONDS = 0.5
"""Until the next try; each that fails doubles it. It may have been another judge's work, which is soon over."""

T = TypeVar("T")


class StageClock:
    """What a candidate has left of the time of its stage, and how long each stage took."""

    def __init__(self, room: JudgeResources, stage_seconds: dict[str, float]) -> None:
        """``stage_seconds`` is filled, stage by stage."""
        self._room = room
        self._stage_seconds = stage_seconds
        self.stage: schema.Stage = "start"
        self.limit_seconds = self._left_seconds = self._counted_from_seconds = HOUSEKEEPING_SECONDS
        self._next_try, self._patience_seconds = 0.0, _FIRST_PATIENCE_SECONDS

    @property
    def used_seconds(self) -> float:
        """Of the stage's time."""
        return self.limit_seconds - self._left_seconds

    def give_back(self, seconds: float) -> None:
        """Time that was not the candidate's."""
        self._left_seconds += seconds

    @property
    def busy_seconds(self) -> float:
        """Of the stage's time, how much the worker has used since counting began."""
        return self._counted_from_seconds - self._left_seconds

    def begin_counting(self) -> None:
        self._counted_from_seconds = self._left_seconds

    @contextmanager
    def in_stage(self, stage: schema.Stage, limit_seconds: float) -> Iterator[None]:
        """All commands to the worker inside this block have this much time together."""
        lane = self._room.lane
        self.stage, began, waited = stage, time.monotonic(), lane.waited_seconds
        self.limit_seconds = self._left_seconds = self._counted_from_seconds = limit_seconds
        try:
            yield
        finally:
            before = self._stage_seconds.get(stage, 0.0)
            took = time.monotonic() - began - (lane.waited_seconds - waited)
            self._stage_seconds[stage] = round(before + took, 6)

    def allow(self, worker: PausableWorker, action: Callable[[float], T]) -> T:
        """Let the worker act, on what is left of the stage's time. The judge's own work is not charged to it, and
        neither is the time for which it stands still so that somebody else can measure.
        """
        self._room.signs_of_life += 1
        began = time.monotonic()
        worker.is_urgent = not (self._room.lane.is_shared and self._room.shares_device)
        if not self._room.lane.is_shared:
            try:
                return action(began + self._left_seconds)
            finally:
                self._left_seconds -= time.monotonic() - began
        with worker.giving_way(lambda: self._make_way(worker)) as pauses:
            try:
                return action(began + self._left_seconds)
            finally:
                self._left_seconds -= time.monotonic() - began - pauses.seconds

    def _make_way(self, worker: PausableWorker) -> None:
        """Somebody waits to measure: have the candidate stand still, and give up the place in the lane meanwhile.

        Only if nothing of what it has begun is still under way on the device, which does not stop with it. If it is,
        the other has to wait until the candidate is done, or its time is over.
        """
        room = self._room
        if time.monotonic() < self._next_try or not room.lane.is_wanted() or worker.is_in_kernel():
            return
        try:
            worker.freeze()
        except OverLimitError as error:  # in the depth of a driver, perhaps: nothing that it can be blamed for
            raise WorkerLostError("the worker did not stand still") from error
        until = time.monotonic() + _QUIET_WITHIN_SECONDS
        while not (quiet := room.is_quiet()) and time.monotonic() < until:
            pass
        if quiet:
            room.make_way()
            self._patience_seconds = _FIRST_PATIENCE_SECONDS
        else:
            self._next_try = time.monotonic() + self._patience_seconds
            self._patience_seconds = min(2 * self._patience_seconds, _MOST_PATIENCE_SECONDS)
        worker.thaw()
