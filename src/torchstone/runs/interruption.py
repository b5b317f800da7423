"""Ctrl-C and SIGTERM while a run is under way: they end it between two records, never inside the writing of one."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_FORCE = 3
"""The signal, counted from the first, that is no longer held back: someone really wants out."""


class Interruption:
    """Turns both signals into KeyboardInterrupt at a moment when nothing is half done.

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
        """What is done in here is finished first."""
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
        if not self._held or self._received >= _FORCE:
            raise KeyboardInterrupt
