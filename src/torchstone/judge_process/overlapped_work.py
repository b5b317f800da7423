"""Does the judge's own work while a worker makes untimed calls, so that neither waits for the other."""

from __future__ import annotations

import time
from collections.abc import Callable


class Meanwhile:
    """Work of the judge's own to be done while a worker makes calls that are not timed. Done once, or not at all."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work: Callable[[], None] | None = work
        self.seconds = 0.0
        """What it took: no time of the worker's."""

    def do(self) -> float:
        """Do it now, unless it was done; how long it took."""
        work, self._work = self._work, None
        began = time.monotonic()
        if work is not None:
            work()
        took = time.monotonic() - began
        self.seconds += took
        return took
