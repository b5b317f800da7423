"""Waits, for a limited time, until a killed worker and all processes that it has started have ended."""

from __future__ import annotations

import os
import select
import time

from torchstone.supervisor.ptrace_freezing import PtraceFreezer
from torchstone.supervisor.sigstop_freezing import SigstopFreezer

_GONE_SECONDS = 30.0
"""Longest wait for all processes of a killed worker to end: freeing their memory can take the system seconds."""
_POLL_SECONDS = 0.05


def wait_for_exit(pid: int, freezer: PtraceFreezer | SigstopFreezer | None) -> bool:
    """Wait for a process to end; return whether it did in time. A warden ends after its whole pid namespace."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    except OSError:  # a system without pidfd_open
        return _has_vanished(pid, _GONE_SECONDS)
    try:
        if freezer is None:
            return _has_ended(descriptor, _GONE_SECONDS)
        freezer.reap_until_over(_GONE_SECONDS, lambda seconds: _has_ended(descriptor, seconds))
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
        time.sleep(_POLL_SECONDS)
    return True
