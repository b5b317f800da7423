"""Settings of the Python API: the judging options of the command line, with the same defaults."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from torchstone import registry
from torchstone.errors import UsageError
from torchstone.executors import ExecutorOptions
from torchstone.reports.safe_text import one_line
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
    """Settings of judging, with the defaults of the command line."""

    suite: str = "smoke"
    cases: tuple[Case, ...] | None = None
    """Cases to judge on instead of the suite's."""
    source: str | None = None
    """File of recorded calls, for suites that read one."""
    largest: int | None = None
    """Only this many cases of each operator, those with the most bytes of arguments."""
    sample: int | None = None
    """Only this many cases, taken from every operator in turn."""
    mode: Mode = "fwd"
    """Whether results (`fwd`), gradients (`bwd`) or both are judged."""
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
    """Name of the executor that runs the jobs."""
    ray_address: str = "auto"
    """Address of the cluster, for the executor `ray`."""
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
    """Folder of evaluations that are used again for the same kernel, cases, settings, type of device,
    layers of isolation and versions."""


NAMES = tuple(item.name for item in fields(Settings))
OF_PROCESSES = ("device", "isolation", "limits", "threads", "judges", "executor", "ray_address", "gpu", "results")
"""Settings with which judge processes are started. They are fixed for the life of a `Judge`."""
_SHARED = tuple(name for name in NAMES if name in RunRequest.__struct_fields__)
"""Settings that are also fields of a run's request, and are checked with it."""


def changed(settings: Settings, given: Mapping[str, Any]) -> Settings:
    """A copy of the settings with the given ones replaced, checked like options of the command line."""
    unknown = sorted(set(given) - set(NAMES))
    if unknown:
        raise UsageError(f"unknown setting: {', '.join(unknown)}. Known: {', '.join(NAMES)}.")
    made = replace(settings, **given)
    made = replace(made, dtypes=names_of(made.dtypes))
    _require_kinds(made)
    request = request_of(made)
    registry.executors.factory(made.executor)
    folder = None if made.verdict_cache is None else Path(made.verdict_cache)
    cases = None if made.cases is None else tuple(made.cases)
    return replace(made, dtypes=check_request(request).dtypes, verdict_cache=folder, cases=cases)


def names_of(given: Any) -> Any:
    """Names as a tuple. A text holds one name, or several with commas between, as on the command line."""
    return tuple(name.strip() for name in given.split(",")) if isinstance(given, str) else given


_CHOICES = {name: get_args(kind) for name, kind in get_type_hints(Settings).items() if get_origin(kind) is Literal}
"""Setting -> its allowed values, for settings of a `Literal` type."""


def _require_kinds(settings: Settings) -> None:
    """Check the types of settings for which msgspec reports an error less clearly, or not at all."""
    for name, values in _CHOICES.items():
        if (value := getattr(settings, name)) not in values:
            raise UsageError(f"{name} is {value!r}; it must be one of {', '.join(values)}.")
    for name, kind in (("deadlines", Deadlines), ("limits", Limits)):
        if not isinstance(value := getattr(settings, name), kind):
            raise _of_wrong_kind(name, value, f"torchstone.{kind.__name__}({kind.__struct_fields__[0]}=…)")
        try:
            msgspec.convert(msgspec.structs.asdict(value), kind)
        except msgspec.ValidationError as error:
            raise of_wrong_part(error, msgspec.structs.asdict(value)) from error
    if not isinstance(settings.verdict_cache, str | os.PathLike | None):
        raise _of_wrong_kind("verdict_cache", settings.verdict_cache, "a path")
    cases = settings.cases
    if cases is not None and not (isinstance(cases, Iterable) and all(isinstance(each, Case) for each in cases)):
        raise _of_wrong_kind("cases", cases, "a list of torchstone.Case")


def _of_wrong_kind(name: str, value: object, expected: str) -> UsageError:
    return UsageError(f"{name} is {type(value).__name__}: {one_line(repr(value), limit=80)}; it must be {expected}.")


def of_wrong_part(error: msgspec.ValidationError, given: Mapping[str, Any]) -> UsageError:
    """A UsageError with name and value, from msgspec's ``Expected `int`, got `str` - at `$.threads```."""
    text = str(error).replace("`", "").replace("array", "list")
    expected, _, place = text.partition(" - at $.")
    name = place.partition(".")[0].partition("[")[0]
    return UsageError(f"{name} is {one_line(repr(given.get(name)), limit=80)}. {expected}.")


def request_of(settings: Settings, operators: tuple[str, ...] | None = None, measured: bool = True) -> RunRequest:
    """The settings as a RunRequest. Raises UsageError for a field of the wrong type."""
    given = {name: getattr(settings, name) for name in _SHARED}
    try:
        return msgspec.convert(
            {**given, "operators": operators, "measured": measured}, RunRequest, from_attributes=True
        )
    except msgspec.ValidationError as error:
        raise of_wrong_part(error, given) from error


def executor_options(settings: Settings, device: str, idle_seconds: float) -> ExecutorOptions:
    """The options with which an executor starts judge processes."""
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
