"""Replaces ATen's operators by the kernels of a folder, and back: ``torchstone.enable``, ``torchstone.disable``."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import torch

from torchstone.backends import BackendOptions, Problem, folder_name, operator_name
from torchstone.backends.directory import DirectoryBackend, served_by
from torchstone.backends.torchstone_kernels import BACKENDS, is_built_in
from torchstone.errors import DeviceUnavailableError, UsageError, unknown_name
from torchstone.installing import dispatcher_registrations
from torchstone.installing.loading import KernelLoadError, load_kernel
from torchstone.kernels.catalogue import folder_of
from torchstone.schema import Implementation, SourceFiles
from torchstone.suites import names_operator

DeviceWord = Literal["auto", "cpu", "cuda"]

_lock = threading.RLock()
_enabled: list[Installation] = []
"""The active installations, in the order in which they were enabled."""


class Installation:
    """Kernels that replace operators until ``disable``. As a context manager it calls ``disable`` at its end."""

    def __init__(
        self, kernels: Sequence[dispatcher_registrations.Kernel], problems: tuple[Problem, ...], device: str
    ) -> None:
        self._kernels = tuple(kernels)
        self.problems = problems
        """Kernels and folders that could not be used, with the reason."""
        self.device = device
        """``cpu`` or ``cuda``."""
        self._entered = False

    @property
    def installed(self) -> dict[str, str]:
        """Overload -> the file of its kernel."""
        return {kernel.operator: kernel.label for kernel in self._kernels}

    @property
    def calls(self) -> dict[str, int]:
        """Overload -> how often its kernel was called so far."""
        return {kernel.operator: kernel.calls for kernel in self._kernels}

    @property
    def refused(self) -> dict[str, int]:
        """Overload -> how many of these calls its kernel refused, so that torch's own served (``fallback=True``)."""
        return {kernel.operator: kernel.refused for kernel in self._kernels}

    @property
    def active(self) -> bool:
        """Whether its kernels are installed, though a later installation may serve instead of them."""
        return self in _enabled

    def disable(self) -> None:
        """Take its kernels out, also while later installations are active. A second call does nothing."""
        with _lock:
            if self not in _enabled:
                return
            _enabled.remove(self)
            for kernel in self._kernels:
                dispatcher_registrations.uninstall(kernel, self.device)
                kernel.unload()

    def _install(self) -> None:
        with _lock:
            installed_kernels: list[dispatcher_registrations.Kernel] = []
            try:
                for kernel in self._kernels:
                    dispatcher_registrations.install(kernel, self.device)
                    installed_kernels.append(kernel)
            except BaseException:
                for kernel in installed_kernels:
                    dispatcher_registrations.uninstall(kernel, self.device)
                raise
            _enabled.append(self)

    def __enter__(self) -> Self:
        if self._entered or not self.active:
            raise UsageError("an installation serves one 'with'. Call torchstone.enable again for another.")
        self._entered = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.disable()

    def __repr__(self) -> str:
        state = "active" if self.active else "disabled"
        return f"<Installation of {len(self._kernels)} kernels on {self.device}, {state}>"


def enable(
    kernel_dir: str | Path,
    *,
    operators: Sequence[str] | None = None,
    device: DeviceWord = "auto",
    fallback: bool = False,
) -> Installation:
    """Replace ATen's operators by the kernels of a folder, in this process and all of its threads.

    ``torchstone-triton`` and ``torchstone-cuda`` name the built-in kernels, unless there is a folder of that name. A
    function and a context manager: without ``with``, they stay until ``torchstone.disable()``. ``operators`` chooses
    among the folder's (``add``, ``aten.add.Tensor``). With ``fallback``, calls that a kernel refuses with
    NotImplementedError are served by torch's own operator. Kernels that cannot be used are warned of and listed in
    ``problems``; if none can be used, that is a UsageError.
    """
    device_type = _device_type(device)
    root, backend = _folder_and_backend(Path(kernel_dir), device_type)
    wanted = _Wanted(operators)
    problems = list(_unusable(backend, wanted))
    implementations = _implementations(backend, wanted)
    wanted.check(implementations, problems, backend.operators())
    kernels: list[dispatcher_registrations.Kernel] = []
    for implementation in implementations:
        found = _loaded_kernel(implementation, root, device_type, fallback)
        if isinstance(found, Problem):
            problems.append(found)
        else:
            kernels.append(found)
    if not kernels:
        raise UsageError(f"no kernel of {root} can be used: {_joined(problems)}.")
    if problems:
        warnings.warn(f"some of {root} cannot be used: {_joined(problems)}.", stacklevel=2)
    installation = Installation(kernels, tuple(problems), device_type)
    installation._install()
    return installation


def disable() -> None:
    """Undo the innermost ``enable`` that is still in force."""
    with _lock:
        if not _enabled:
            raise UsageError("nothing is enabled. Call torchstone.enable first.")
        _enabled[-1].disable()


def _device_type(device: str) -> str:
    if device not in ("auto", "cpu", "cuda"):
        raise UsageError(f"device '{device}' is not understood. Use auto, cpu or cuda.")
    available = torch.cuda.is_available() if device != "cpu" else False
    if device == "cuda" and not available:
        raise DeviceUnavailableError("device 'cuda' is not available to torch here. Use device='cpu'.")
    return "cuda" if available else "cpu"


def _folder_and_backend(given: Path, device_type: str) -> tuple[Path, DirectoryBackend]:
    """The folder of the kernels, and the backend that reads it. Built-in kernels lie in a folder of the package."""
    if is_built_in(given):
        kind = BACKENDS[str(given)]
        return folder_of(kind.language), kind(BackendOptions(device_type=device_type))
    return given, DirectoryBackend(BackendOptions(given, device_type))


class _Wanted:
    """The operators that the caller of ``enable`` chose; without names, all of the folder."""

    def __init__(self, names: Sequence[str] | None) -> None:
        self.names = (names,) if isinstance(names, str) else names

    def includes(self, operator: str) -> bool:
        return self.names is None or any(names_operator(name, operator) for name in self.names)

    def includes_folder_of(self, problem: Problem) -> bool:
        """Whether the problem is about the folder of a chosen operator."""
        return self.includes(_operator_of(problem))

    def check(
        self, implementations: Sequence[Implementation], problems: Sequence[Problem], known: Sequence[str]
    ) -> None:
        """Raise UsageError for a name that matches no operator of the folder, usable or not."""
        operators_of_folder = [*(offer.operator for offer in implementations), *map(_operator_of, problems)]
        for name in self.names or ():
            if not any(names_operator(name, operator) for operator in operators_of_folder):
                raise unknown_name("operator of this folder", name, known)


def _operator_of(problem: Problem) -> str:
    return operator_name(Path(problem.where).name) or ""


def _unusable(backend: DirectoryBackend, wanted: _Wanted) -> Iterator[Problem]:
    """Problems of the chosen operators: folders that cannot be read, and names that torch has no operator for."""
    yield from (problem for problem in backend.problems() if wanted.includes_folder_of(problem))
    for found in backend.operators():
        if wanted.includes(found) and not _overloads(found):
            yield Problem(folder_name(found), f"torch {torch.__version__} has no such operator or overload")


def _implementations(backend: DirectoryBackend, wanted: _Wanted) -> list[Implementation]:
    overloads = sorted({overload for found in backend.operators() for overload in _overloads(found)})
    implementations = (backend.implementation(overload) for overload in overloads if wanted.includes(overload))
    return [offer for offer in implementations if offer is not None]


def _overloads(found: str) -> list[str]:
    """The overloads that a folder named ``found`` serves and that torch has."""
    return [name for name in served_by(found) if dispatcher_registrations.exists(name)]


def _loaded_kernel(
    implementation: Implementation, root: Path, device_type: str, fallback: bool
) -> dispatcher_registrations.Kernel | Problem:
    source = implementation.origin
    assert isinstance(source, SourceFiles), "the directory backend offers nothing else"
    reason = dispatcher_registrations.installable(implementation.operator, device_type)
    if reason:
        return Problem(source.label, f"{implementation.operator}: {reason}")
    try:
        loaded = load_kernel(source, root)
    except KernelLoadError as error:
        return Problem(source.label, str(error))
    return dispatcher_registrations.Kernel(implementation.operator, source.label, loaded, fallback)


def _joined(problems: Sequence[Problem]) -> str:
    return "; ".join(f"{problem.where}: {problem.reason}" for problem in problems)
