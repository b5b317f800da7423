"""Defines the interface of a backend (a source of kernels), and a backend of given kernels for the API and tests."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

import msgspec

from torchstone.schema import Implementation


class BackendOptions(msgspec.Struct, frozen=True):
    """Options for backends, from the command line or the API. Each backend uses those that it needs."""

    kernels_dir: Path | None = None
    device_type: str = "cpu"


class Backend(Protocol):
    """A source of implementations (kernels). Constructed with :class:`BackendOptions`.

    Optional: a class attribute ``operator_count`` for a backend that serves a fixed number of operators, and a method
    ``why_missing(operator) -> str`` for one that can say why it has no kernel for an overload.
    """

    def implementation(self, operator: str) -> Implementation | None:
        """The kernel of this backend for the overload (`aten.add.Tensor`); None: it has none."""
        ...


class Problem(msgspec.Struct, frozen=True):
    """Something a backend found that it could not use, with the reason."""

    where: str
    reason: str


class HeldKernel(msgspec.Struct, frozen=True):
    """One kernel of a backend that can list its kernels. Such a backend has a method ``held()``."""

    where: str
    """Folder or file of the kernel, named as in a `Problem`."""
    serves: tuple[str, ...]
    """The overloads of one operator for which the kernel would be used."""


class ListedBackend:
    """A backend of given implementations: the fake for tests, and how the API passes one kernel."""

    def __init__(self, implementations: Iterable[Implementation]) -> None:
        self._by_operator = {item.operator: item for item in implementations}

    def implementation(self, operator: str) -> Implementation | None:
        return self._by_operator.get(operator)
