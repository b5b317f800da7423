"""Limits how many submissions are in progress. Waiting callers get slots in the order of their requests.

It serves threads and tasks: a request returns a future, which a thread waits for and a task awaits.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from threading import Lock


class SubmissionSlots:
    """At most ``count`` submissions may be in progress."""

    def __init__(self, count: int) -> None:
        self._lock = Lock()
        self._count = self._free = count
        self._waiting: deque[Future[None]] = deque()

    @property
    def taken(self) -> int:
        """Number of slots in use."""
        return self._count - self._free

    def request(self) -> Future[None]:
        """Request a slot. The future is done when the caller holds one; cancel it to stop waiting."""
        asked: Future[None] = Future()
        with self._lock:
            self._waiting.append(asked)
        self._assign_slots()
        return asked

    def release(self) -> None:
        """Release a slot."""
        with self._lock:
            self._free += 1
        self._assign_slots()

    def fail(self, error: Exception) -> None:
        """Fail all waiting requests with the error."""
        with self._lock:
            waiting, self._waiting = self._waiting, deque()
        for asked in waiting:
            if asked.set_running_or_notify_cancel():
                asked.set_exception(error)

    def _assign_slots(self) -> None:
        while True:
            with self._lock:
                if not self._free or not self._waiting:
                    return
                asked = self._waiting.popleft()
                if not asked.set_running_or_notify_cancel():
                    continue
                self._free -= 1
            asked.set_result(None)
