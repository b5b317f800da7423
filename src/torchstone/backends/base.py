"""Defines the interface of a backend (a source of kernels), and a backend of given kernels for the API and tests."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

import msgspec

from torchstone.schema import Implementation


class BackendOptions(msgspec.Struct, frozen=True):
    """What the command line or the API says about backends. Each backend takes what it needs."""

    kernels_dir: Path | None = None
    device_type: str = "cpu"


class Backend(Protocol):
    """Where implementations come from. Constructed with :class:`BackendOptions`.

    Optional: a class attribute ``operator_count`` for a backend that serves a fixed number of operators, and a method
    ``why_missing(operator) -> str`` for one that can say why it has no kernel for an overload.
    """

    def implementation(self, operator: str) -> Implementation | None:
        """What this backend offers for the overload (`aten.add.Tensor`), or None."""
        ...


class Problem(msgspec.Struct, frozen=True):
    """Something a backend found that it could not use, with the reason."""

    where: str
    reason: str


class HeldKernel(msgspec.Struct, frozen=True):
    """One kernel that a backend holds. A backend that can list its kernels has a method ``held()``."""

    where: str
    """Its folder or file, as problems name it."""
    serves: tuple[str, ...]
    """The overloads that it would be used for, of one operator."""


class ListedBackend:
    """A backend of given implementations: the fake for tests, and how the API passes one kernel."""

    def __init__(self, implementations: Iterable[Implementation]) -> None:
        self._by_operator = {item.operator: item for item in implementations}

    def implementation(self, operator: str) -> Implementation | None:
        return self._by_operator.get(operator)
