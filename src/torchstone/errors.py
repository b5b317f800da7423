"""The exceptions that users of Torchstone meet, as one tree of classes, each with an exit code.

A failure of a *candidate* (a kernel that is judged) is a :class:`~torchstone.schema.Verdict`, not an exception. These
errors are for wrong requests (exit code 2), for what the machine could not do (3), and for installed kernels that fail
in the user's own process (1).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


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


_LEAST_SIMILARITY = 0.65
"""Least share of equal characters (difflib) of a misspelling. Three letters of which two are swapped give 0.67."""
_SHORTEST_PART_CHARACTERS = 3
"""Fewest characters of a name that is searched for inside longer names."""
_MOST_LISTED = 50
"""Most names that a message lists. If there are more, it gives only their number."""


def unknown_name(kind: str, name: str, known: Iterable[str], listed_by: str = "") -> UsageError:
    """An error for a name that is not registered: the name, the nearest match, and the known names.

    `listed_by` is a command that lists the names. The message quotes it if there are too many names to list.
    """
    names = sorted(set(known))
    near = nearest(name, names)
    hint = f" Did you mean '{near}'?" if near else ""
    listed = f"Known: {', '.join(names) or 'none'}."
    if len(names) > _MOST_LISTED:
        listed = f"{len(names)} names are known" + (f"; {listed_by} lists them." if listed_by else ".")
    return UsageError(f"unknown {kind} '{name}'.{hint} {listed}")


def nearest(name: str, names: Sequence[str]) -> str:
    """The known name that is most similar to ``name``, else the shortest one that contains it; empty: neither."""
    forms: dict[str, str] = {}
    for known in names:
        for form in _forms(known):
            forms.setdefault(form, known)
    alike = difflib.get_close_matches(name, forms, n=1, cutoff=_LEAST_SIMILARITY)
    if alike:
        return forms[alike[0]]
    containing = [known for known in names if name in known] if len(name) >= _SHORTEST_PART_CHARACTERS else []
    return min(containing, key=len, default="")


def _forms(known: str) -> tuple[str, ...]:
    """How people write a name: ``aten.add.Tensor``, ``add.Tensor`` and ``add``."""
    first, *more = known.split(".")
    return (known, ".".join(more), more[0]) if len(more) > 1 else (known, first)
