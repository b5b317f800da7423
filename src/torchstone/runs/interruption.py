"""Ends a run on Ctrl-C or SIGTERM between two records; only a third signal can interrupt the writing of one."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_FORCE = 3
"""The number of the signal that forces the exit."""


class Interruption:
    """Turns the first signal into KeyboardInterrupt, but not while a record is being written.

    A second signal is ignored: it may come while the executor ends its processes, and all of them must be ended.

    Only the main thread of a program may set signal handlers. In other threads this does nothing, and the program's
    own handlers stay.
    """

    def __init__(self) -> None:
        self._delayed = False
        self._received = 0

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Handle the signals in the block, and restore the old handlers afterwards."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._receive) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Delay the first signal in the block, until :meth:`raise_pending` is called."""
        self._delayed = True
        try:
            yield
        finally:
            self._delayed = False

    def raise_pending(self) -> None:
        """Raise KeyboardInterrupt if a signal was received."""
        if self._received:
            raise KeyboardInterrupt

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self._received += 1
        first = self._received == 1 and not self._delayed
        if first or self._received >= _FORCE:
            raise KeyboardInterrupt
