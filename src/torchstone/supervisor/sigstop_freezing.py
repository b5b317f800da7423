"""Freezes a worker by SIGSTOP if the machine refuses ptrace. This is weaker, and the record says so.

The warden is the trusted process that forks the worker. Every process below it gets SIGSTOP, until a check finds each
thread stopped and no new process. Any SIGCONT ends a stop, and a candidate can make the system send it one, by a timer
for example. So a dishonest kernel can run while it is frozen. Honest kernels stay frozen.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress

from torchstone.supervisor.ptrace_freezing import CannotFreezeError, descendants, state_of, threads_of

_FREEZE_SECONDS = 3.0
"""Longest time for freezing a worker."""
_PAUSE_SECONDS = 0.0002
_CHECKS_WITHOUT_PAUSE = 64
"""Number of checks without a pause between them: a running process stops within microseconds."""


class SigstopFreezer:
    """Freezes and resumes the processes below a warden by signals. Has the methods of `PtraceFreezer`."""

    refusal: OSError | None = None

    def __init__(self, warden: int) -> None:
        self._warden = warden
        self._frozen: list[int] = []

    @property
    def is_frozen(self) -> bool:
        """Whether the worker is frozen."""
        return bool(self._frozen)

    @property
    def threads(self) -> int:
        """Number of frozen threads."""
        return sum(len(threads_of(pid)) for pid in self._frozen)

    def freeze(self) -> None:
        """Stop every process. Raises :class:`CannotFreezeError` if that takes too long."""
        until = time.monotonic() + _FREEZE_SECONDS
        for check in range(1 << 62):
            known = self._processes()
            states = {pid: _states(pid) for pid in known}
            if all(states[pid] <= set("TZX") for pid in known) and self._processes() == known:
                self._frozen = [pid for pid in known if "T" in states[pid]]
                return
            for pid in known:
                if not states[pid] <= set("TZX"):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGSTOP)
            if time.monotonic() > until:
                raise CannotFreezeError("the worker's processes do not stop")
            if check > _CHECKS_WITHOUT_PAUSE:
                time.sleep(_PAUSE_SECONDS)

    def _processes(self) -> list[int]:
        return descendants(self._warden)[1:]

    def was_killed(self, thread: int) -> bool:
        """Whether the process of a first thread is dead."""
        return _states(thread) <= set("ZX")

    def thaw(self) -> list[int]:
        """Resume all processes; return those that died while frozen."""
        frozen, self._frozen = self._frozen, []
        killed = [pid for pid in frozen if self.was_killed(pid)]
        for pid in frozen:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        return killed

    def reap_until_over(self, seconds: float, is_over: Callable[[float], bool]) -> None:
        """Wait for the end of the processes. Nothing is traced, so their parents reap them."""
        is_over(seconds)

    def reap_dead(self) -> None:
        """Nothing to do: nothing is traced, so the warden reaps processes that end."""

    def close(self) -> None:
        """Nothing to do: nothing is open."""


def _states(pid: int) -> set[str]:
    """The letters of the states of a process's threads; empty if the process has ended."""
    found: set[str] = set()
    for thread in threads_of(pid):
        with suppress(OSError):
            found.add(state_of(pid, thread)[0])
    return found
