"""Freezes a worker by SIGSTOP where the machine refuses ptrace. Weaker, and the record says so.

Every process below the warden, the trusted process that forks the worker, gets SIGSTOP until a look at all
of them finds each thread stopped and no new process. Any SIGCONT ends a stop, and a candidate can have the system send
it one, by a timer for example. So a dishonest kernel can run while it should not. Honest kernels stand still.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress

from torchstone.supervisor.ptrace_freezing import NotStillError, descendants, state_of, threads_of

_STILL_SECONDS = 3.0
_PAUSE_SECONDS = 0.0002
_PATIENT_LOOKS = 64
"""So many looks come at once: a process that runs stops within microseconds."""


class StopHold:
    """The processes below a warden, held by signals. The same methods as `Hold`."""

    refusal: OSError | None = None

    def __init__(self, warden: int) -> None:
        self._warden = warden
        self._held: list[int] = []

    @property
    def is_holding(self) -> bool:
        """Whether the worker stands still."""
        return bool(self._held)

    @property
    def threads(self) -> int:
        """How many stand still."""
        return sum(len(threads_of(pid)) for pid in self._held)

    def take(self) -> None:
        """Stop everything."""
        until = time.monotonic() + _STILL_SECONDS
        for look in range(1 << 62):
            known = self._below()
            states = {pid: _states(pid) for pid in known}
            if all(states[pid] <= set("TZX") for pid in known) and self._below() == known:
                self._held = [pid for pid in known if "T" in states[pid]]
                return
            for pid in known:
                if not states[pid] <= set("TZX"):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGSTOP)
            if time.monotonic() > until:
                raise NotStillError("the worker's processes do not stop")
            if look > _PATIENT_LOOKS:
                time.sleep(_PAUSE_SECONDS)

    def _below(self) -> list[int]:
        return descendants(self._warden)[1:]

    def was_killed(self, thread: int) -> bool:
        """Whether its process is dead."""
        return _states(thread) <= set("ZX")

    def release(self) -> list[int]:
        """Let everything go on; returns the processes that died while they stood still."""
        held, self._held = self._held, []
        killed = [pid for pid in held if self.was_killed(pid)]
        for pid in held:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        return killed

    def bury(self, seconds: float, is_over: Callable[[float], bool]) -> None:
        """Wait for an end: nobody is kept from taking note of it."""
        is_over(seconds)

    def bury_dead(self) -> None:
        """Nothing is traced: the warden takes note of who ends."""

    def close(self) -> None:
        """Nothing is held open."""


def _states(pid: int) -> set[str]:
    """The letters of the states of its threads; none if it is gone."""
    found: set[str] = set()
    for thread in threads_of(pid):
        with suppress(OSError):
            found.add(state_of(pid, thread)[0])
    return found
