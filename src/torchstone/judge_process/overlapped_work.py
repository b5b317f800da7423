"""Does the judge's own work while a worker makes untimed calls, so that neither waits for the other."""

from __future__ import annotations

import time
from collections.abc import Callable


class OverlappedWork:
    """Work of the judge, to be done once while a worker makes untimed calls."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work: Callable[[], None] | None = work
        self.seconds = 0.0
        """How long the work took. It does not count as the worker's time."""

    def do(self) -> float:
        """Do the work, unless it was done. Returns how many seconds it took now."""
        work, self._work = self._work, None
        began = time.monotonic()
        if work is not None:
            work()
        took = time.monotonic() - began
        self.seconds += took
        return took
