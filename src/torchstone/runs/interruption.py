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
    """Turns the first signal into KeyboardInterrupt at a moment when nothing is half done.

    A second one is ignored: it may come while the executor ends its processes, which must not be left behind.

    Only the main thread of a program may set signal handlers; elsewhere this does nothing and the program's own
    handling stands.
    """

    def __init__(self) -> None:
        self._held = False
        self._received = 0

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Handle the signals in here, and give back the old handlers afterwards."""
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
        """A signal in here takes effect only at the end."""
        self._held = True
        try:
            yield
        finally:
            self._held = False

    def raise_pending(self) -> None:
        """Act on a signal that was held back."""
        if self._received:
            raise KeyboardInterrupt

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self._received += 1
        first = self._received == 1 and not self._held
        if first or self._received >= _FORCE:
            raise KeyboardInterrupt
