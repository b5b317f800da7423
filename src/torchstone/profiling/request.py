"""The options of a profile, checked before anything is started."""

from __future__ import annotations

from pathlib import Path

import msgspec

from torchstone import registry
from torchstone.errors import UsageError
from torchstone.runs import canonical_dtypes
from torchstone.schema import IsolationLevel

ALLOW_UNSANDBOXED = "--allow-unsandboxed-profilers"
"""Option of commands that profile kernels written by models."""


class ProfileRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel, one case, some profilers."""

    kernel: str
    """A kernel file, a folder of kernels, or an operator of a backend."""
    profilers: tuple[str, ...] = ("torch",)
    suite: str = "smoke"
    backend: str | None = None
    """Where an operator's kernel comes from; None: `directory` if there is a folder of kernels, else `aten`."""
    kernels_dir: Path | None = None
    operator: str | None = None
    """Operator that the kernel computes. None: taken from the kernel's name."""
    entry: str | None = None
    """The function of a kernel file; None: found by its name."""
    case: str | None = None
    """Key or label of the case, or a part of it that is unique. None: the largest timed case."""
    dtypes: tuple[str, ...] | None = None
    device: str = "auto"
    calls: int = 5
    threads: int = 1
    isolation: IsolationLevel = "best"
    seconds: float = 180.0
    """Time limit of each profiler."""
    output_dir: Path = Path("torchstone_profiles")
    only_sandboxed: bool = False
    """Refuse profilers that run the kernel outside the sandbox. For kernels of a model that no person has read."""


def check(request: ProfileRequest) -> ProfileRequest:
    """Check a request. Return it with canonical names of suite, backend and dtypes, and each profiler once.

    Raises a `UsageError` for an invalid option.
    """
    for name in request.profilers:
        profiler = registry.profilers.factory(name)
        if request.only_sandboxed and not getattr(profiler, "in_sandbox", False):
            raise UsageError(
                f"profiler '{name}' runs the kernel outside the sandbox, with your rights, and a model wrote the "
                f"kernel. Use torch, or allow it with {ALLOW_UNSANDBOXED}."
            )
    if not request.profilers:
        raise UsageError("no profiler to use. Known: " + ", ".join(registry.profilers.names()) + ".")
    for field, least in (("calls", 1), ("threads", 1)):
        if getattr(request, field) < least:
            raise UsageError(f"{field} is {getattr(request, field)}; it must be {least} or more.")
    if not 0 < request.seconds < float("inf"):
        raise UsageError(f"the time limit is {request.seconds:g} s; it must be above 0.")
    return msgspec.structs.replace(
        request,
        profilers=tuple(dict.fromkeys(request.profilers)),
        suite=registry.suites.canonical(request.suite),
        backend=None if request.backend is None else registry.backends.canonical(request.backend),
        dtypes=None if request.dtypes is None else canonical_dtypes(request.dtypes),
    )
