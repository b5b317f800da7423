"""The one tree of errors.

What a *candidate* does wrong is never an exception: it is a :class:`~torchstone.schema.Verdict`. These errors
are for what the user asked wrongly (exit code 2) and for what the machine could not do (exit code 3).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class TorchstoneError(Exception):
    """Root of every error that Torchstone raises on purpose. The message is one line and says what to do."""

    exit_code = 3


class UsageError(TorchstoneError):
    """The request cannot be carried out as asked: unknown name, bad value, contradictory options."""

    exit_code = 2


class InfrastructureError(TorchstoneError):
    """The machine, not the kernel, prevents an answer."""

    exit_code = 3


class IsolationUnavailableError(InfrastructureError):
    """`--isolation strict` was asked for and a layer is missing on this machine."""


class DeviceUnavailableError(InfrastructureError):
    """The device that was asked for is not there or cannot be used."""


class KernelError(TorchstoneError):
    """An installed kernel failed in the user's own process: the message names it, the cause is what it raised."""

    exit_code = 1


class MissingExtraError(UsageError):
    """An optional dependency is needed; the message names the extra that brings it."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """An error for a name that is not registered: what was asked, the nearest match, what exists."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1) or sorted((each for each in names if name in each), key=len)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    return UsageError(f"unknown {kind} '{name}'.{hint} Known: {', '.join(names) or 'none'}.")
