"""Limits how many submissions are in progress; waiting callers are served in the order in which they came.

One class for threads and for tasks: asking gives a future, which a thread waits for and a task awaits.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from threading import Lock


class Places:
    """At most ``count`` submissions may be in progress."""

    def __init__(self, count: int) -> None:
        self._lock = Lock()
        self._count = self._free = count
        self._waiting: deque[Future[None]] = deque()

    @property
    def taken(self) -> int:
        """How many are handed out."""
        return self._count - self._free

    def ask(self) -> Future[None]:
        """A future that is done when a slot is free and taken for the caller. Cancel it to stop waiting."""
        asked: Future[None] = Future()
        with self._lock:
            self._waiting.append(asked)
        self._hand_out()
        return asked

    def leave(self) -> None:
        """Give a place back."""
        with self._lock:
            self._free += 1
        self._hand_out()

    def fail(self, error: Exception) -> None:
        """Raise the error where somebody waits."""
        with self._lock:
            waiting, self._waiting = self._waiting, deque()
        for asked in waiting:
            if asked.set_running_or_notify_cancel():
                asked.set_exception(error)

    def _hand_out(self) -> None:
        while True:
            with self._lock:
                if not self._free or not self._waiting:
                    return
                asked = self._waiting.popleft()
                if not asked.set_running_or_notify_cancel():
                    continue
                self._free -= 1
            asked.set_result(None)
