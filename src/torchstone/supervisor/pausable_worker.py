"""A worker that the judge may freeze while it waits for a reply. The time frozen is added to the deadline."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from torchstone.supervisor.ptrace_freezing import descendants
from torchstone.supervisor.worker_handle import Worker

_CALLBACK_SECONDS = 0.01
"""Longest time between two calls of the callback while the judge waits for the worker."""


class Pauses:
    """Total time that calls of the callback took while the judge waited for the worker."""

    seconds = 0.0


class PausableWorker(Worker):
    """A worker with a callback that runs while the judge waits. The deadline moves by the time that it takes."""

    _callback: Callable[[], None] | None = None
    _pauses = Pauses()

    @contextmanager
    def polling(self, callback: Callable[[], None]) -> Iterator[Pauses]:
        """In the block, call ``callback`` repeatedly while the judge waits. Its time is added to the deadline."""
        self._callback, self._pauses = callback, Pauses()
        try:
            yield self._pauses
        finally:
            self._callback, self._pauses = None, Pauses()

    def is_in_kernel(self) -> bool:
        """Whether a thread of the worker waits uninterruptibly in the kernel (state D), where it cannot be frozen."""
        for pid in descendants(self.warden_pid)[1:] if self.warden_pid is not None else ():
            with suppress(OSError):
                for task in os.listdir(f"/proc/{pid}/task"):
                    with open(f"/proc/{pid}/task/{task}/stat", "rb") as file:
                        if file.read().rpartition(b")")[2].split()[0] == b"D":
                            return True
        return False

    def _wait_and_read(self, deadline: float) -> None:
        if self._callback is not None:
            began = time.monotonic()
            self._callback()
            self._pauses.seconds += time.monotonic() - began
        super()._wait_and_read(deadline + self._pauses.seconds)

    def _wait_for_input(self, seconds: float) -> bool:
        return super()._wait_for_input(seconds if self._callback is None else min(seconds, _CALLBACK_SECONDS))
