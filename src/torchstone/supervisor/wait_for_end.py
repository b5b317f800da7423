"""Waits, for a limited time, until a killed worker and all processes that it has started have ended."""

from __future__ import annotations

import os
import select
import time

from torchstone.supervisor.ptrace_freezing import Hold
from torchstone.supervisor.sigstop_freezing import StopHold

_GONE_SECONDS = 30.0
"""Until all processes of a worker that was killed have ended: to give back its memory can take the system seconds."""
_LOOK_SECONDS = 0.05


def wait_for_exit(pid: int, hold: Hold | StopHold | None) -> bool:
    """Whether the process is gone in time. A warden is only gone when its whole pid namespace is."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    except OSError:  # a system without it
        return _has_vanished(pid, _GONE_SECONDS)
    try:
        if hold is None:
            return _has_ended(descriptor, _GONE_SECONDS)
        hold.bury(_GONE_SECONDS, lambda seconds: _has_ended(descriptor, seconds))
        return _has_ended(descriptor, 0)
    finally:
        os.close(descriptor)


def _has_ended(process: int, seconds: float) -> bool:
    return bool(select.select([process], [], [], seconds)[0])


def _has_vanished(pid: int, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while os.path.exists(f"/proc/{pid}"):
        if time.monotonic() > until:
            return False
        time.sleep(_LOOK_SECONDS)
    return True
