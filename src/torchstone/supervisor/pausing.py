"""A worker that is waited for can be asked to stand still for a while, in the middle of whatever it does."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from torchstone.supervisor.worker_handle import Worker, descendants

_LOOK_SECONDS = 0.01
"""How often the judge asks itself, while it waits for the worker, whether it should stand still."""


class Pauses:
    """How long a worker stood still while it was waited for."""

    seconds = 0.0


class PausableWorker(Worker):
    """A worker whose time does not go on while it stands still: its deadline moves with every pause."""

    _interlude: Callable[[], None] | None = None
    _pauses = Pauses()

    @contextmanager
    def giving_way(self, interlude: Callable[[], None]) -> Iterator[Pauses]:
        """Call this again and again while the worker is waited for. What it takes is not the worker's time."""
        self._interlude, self._pauses = interlude, Pauses()
        try:
            yield self._pauses
        finally:
            self._interlude, self._pauses = None, Pauses()

    def is_in_kernel(self) -> bool:
        """Whether any thread of it waits inside the system, where it cannot be made to stand still."""
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
