"""Settings of the Python API: the options of the command line that bear on a judgement, with its defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import msgspec

from torchstone import registry
from torchstone.errors import UsageError
from torchstone.executors import ExecutorOptions
from torchstone.runs import RunRequest
from torchstone.runs.request import check as check_request
from torchstone.schema import (
    Baseline,
    Cache,
    Case,
    Deadlines,
    Effort,
    IsolationLevel,
    Limits,
    NonFiniteInputs,
    ResultReading,
    Shapes,
)
from torchstone.suites import Mode


@dataclass(frozen=True)
class Settings:
    """How to judge. Every field has the command line's default."""

    suite: str = "smoke"
    cases: tuple[Case, ...] | None = None
    """Judge on these instead of a suite's."""
    source: str | None = None
    """File of recorded calls, for suites that read one."""
    largest: int | None = None
    """Only this many cases of each operator, those with the most bytes of arguments."""
    sample: int | None = None
    """Only this many cases, taken from every operator in turn."""
    mode: Mode = "fwd"
    """Whether results are judged, gradients (`bwd`), or both."""
    device: str = "auto"
    dtypes: tuple[str, ...] | None = None
    effort: Effort = "normal"
    cache: Cache = "cold"
    """Whether the arguments of timed calls lie in the device's cache."""
    isolation: IsolationLevel = "best"
    threads: int = 1
    judges: int = 1
    """Judges that share a device."""
    executor: str = "local"
    """Where the jobs run."""
    ray_address: str = "auto"
    """Of the cluster, for the executor `ray`."""
    gpu: str = ""
    """Type of GPU to judge on, for executors that have several: ``H100``."""
    results: ResultReading = "read"
    """`copied`: do without reading results in the kernel's memory, and without CUDA IPC."""
    shapes: Shapes = "near"
    """`stated`: judge on the stated sizes and memory layouts alone."""
    non_finite: NonFiniteInputs = "check"
    """`ignore`: do not call pointwise operators with NaN and infinities among their inputs."""
    baseline: Baseline = "eager"
    """`compile`: speed is compared with that of torch.compile."""
    require_authored: bool = False
    """A kernel in which torch or a library does the work is `delegated`."""
    deadlines: Deadlines = field(default_factory=Deadlines)
    try_every_case: bool = False
    """Try every case of a kernel, also after two of them timed out in the same stage."""
    limits: Limits = field(default_factory=Limits)
    verdict_cache: Path | None = None
    """Folder of evaluations that are used again for the same kernel, cases, settings, device and versions."""


NAMES = tuple(item.name for item in fields(Settings))
OF_PROCESSES = ("device", "isolation", "limits", "threads", "judges", "executor", "ray_address", "gpu", "results")
"""What judge processes are started with: fixed for the life of a `Judge`."""
_SHARED = tuple(name for name in NAMES if name in RunRequest.__struct_fields__)
"""Settings that are fields of a run's request too, and are checked as such."""


def changed(settings: Settings, given: Mapping[str, Any]) -> Settings:
    """The settings with others in place of some, checked as the command line's are."""
    unknown = sorted(set(given) - set(NAMES))
    if unknown:
        raise UsageError(f"unknown setting: {', '.join(unknown)}. Known: {', '.join(NAMES)}.")
    made = replace(settings, **given)
    request = request_of(made)
    registry.executors.factory(made.executor)
    folder = None if made.verdict_cache is None else Path(made.verdict_cache)
    cases = None if made.cases is None else tuple(made.cases)
    return replace(made, dtypes=check_request(request).dtypes, verdict_cache=folder, cases=cases)


def request_of(settings: Settings, operators: tuple[str, ...] | None = None, measured: bool = True) -> RunRequest:
    """The same as the request of a run."""
    given = {name: getattr(settings, name) for name in _SHARED}
    try:
        return msgspec.convert(
            {**given, "operators": operators, "measured": measured}, RunRequest, from_attributes=True
        )
    except msgspec.ValidationError as error:
        raise UsageError(f"a setting is not valid: {error}.") from error


def executor_options(settings: Settings, device: str, idle_seconds: float) -> ExecutorOptions:
    """What the judge processes are started with."""
    return ExecutorOptions(
        device=device,
        isolation=settings.isolation,
        limits=settings.limits,
        threads=settings.threads,
        manifest_key="api",
        judges_per_device=settings.judges,
        idle_seconds=idle_seconds,
        results=settings.results,
        address=settings.ray_address,
        gpu=settings.gpu,
    )
