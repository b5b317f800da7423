"""A worker that the judge may freeze while awaiting a reply: it polls a callback, whose time extends the deadline."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from torchstone.supervisor.ptrace_freezing import descendants
from torchstone.supervisor.worker_handle import Worker

_LOOK_SECONDS = 0.01
"""Longest time between two calls of the callback while the judge waits for the worker."""


class Pauses:
    """How long the callback took, all calls together, while the judge waited for the worker."""

    seconds = 0.0


class PausableWorker(Worker):
    """A worker whose deadline moves by the time that the callback takes, for example while the worker is frozen."""

    _interlude: Callable[[], None] | None = None
    _pauses = Pauses()

    @contextmanager
    def giving_way(self, interlude: Callable[[], None]) -> Iterator[Pauses]:
        """Inside, call ``interlude`` again and again while the judge waits. Its time is not charged to the worker."""
        self._interlude, self._pauses = interlude, Pauses()
        try:
            yield self._pauses
        finally:
            self._interlude, self._pauses = None, Pauses()

    def is_in_kernel(self) -> bool:
        """Whether any of its threads waits uninterruptibly in the kernel (state D), where it cannot be frozen."""
        for pid in descendants(self.warden_pid)[1:] if self.warden_pid is not None else ():
            with suppress(OSError):
                for task in os.listdir(f"/proc/{pid}/task"):
                    with open(f"/proc/{pid}/task/{task}/stat", "rb") as file:
                        if file.read().rpartition(b")")[2].split()[0] == b"D":
                            return True
        return False

    def _pump(self, deadline: float) -> None:
        if self._interlude is not None:
            began = time.monotonic()
            self._interlude()
            self._pauses.seconds += time.monotonic() - began
        super()._pump(deadline + self._pauses.seconds)

    def _wait_for_news(self, seconds: float) -> bool:
        return super()._wait_for_news(seconds if self._interlude is None else min(seconds, _LOOK_SECONDS))
