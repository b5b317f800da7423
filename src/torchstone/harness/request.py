"""The options of a run over many benchmark pairs, checked before anything is started."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from torchstone.benchmarks import BenchmarkConfig
from torchstone.errors import UsageError
from torchstone.executors.devices import find_devices
from torchstone.executors.machine import hardware
from torchstone.runs.devices import resolve_device
from torchstone.runs.request import check_run_id

IDENTITY = ("root", "targets", "device", "settings", "regression_threshold_pct")
"""The parts of a configuration that a resumed run must share with its beginning. Timeouts may change."""

OUTPUT_DIR = Path("artifacts")
"""Default folder in which run folders are made."""
REPRODUCIBLE_SEED = 42
"""The seed of `--reproducible`."""
_UNITS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


class PairsRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One run over the pairs of a tree."""

    root: Path = Path()
    """The folder that holds the chapters, or one chapter."""
    targets: tuple[str, ...] | None = None
    """`ch13`, `ch13:moe`, patterns; None: every pair."""
    device: str = "auto"
    """``auto``, ``cpu``, ``cuda`` (the first visible one) or ``cuda:N``."""
    config: BenchmarkConfig = BenchmarkConfig()
    """Settings that the benchmark's own override."""
    overrides: BenchmarkConfig = BenchmarkConfig()
    """Settings of the command line. They override the benchmark's own."""
    regression_threshold_pct: float = 5.0
    """A regression is an optimized side that is slower by more than this."""
    jobs: int = 1
    """Pairs that run at the same time. Work on the device takes turns."""
    suite_timeout_seconds: float | None = 4 * 3600.0
    """No pair begins after this time. None: no limit."""
    run_id: str | None = None
    """Name of the run's folder; None is made from the time."""
    resume: bool = False
    """Continue the run of that id, and keep its records."""
    output_dir: Path = OUTPUT_DIR
    """Where run folders are made."""
    latest: Path | None = None
    """A folder that gets a copy of the two reports."""


def check(request: PairsRequest) -> None:
    """Raise a `UsageError` for an invalid option."""
    check_run_id(request.run_id, request.resume)
    if request.jobs < 1:
        raise UsageError(f"jobs is {request.jobs}; it must be 1 or more.")
    if not 0 <= request.regression_threshold_pct < float("inf"):
        raise UsageError(f"the regression threshold is {request.regression_threshold_pct:g} %; it must be 0 or more.")
    if request.suite_timeout_seconds is not None and not request.suite_timeout_seconds > 0:
        raise UsageError(f"the suite timeout is {request.suite_timeout_seconds:g} s; it must be above 0.")


def choose_device(asked: str) -> str:
    """The one device on which pairs are timed: ``cpu`` or ``cuda:N``."""
    found = resolve_device(asked)
    return find_devices(found)[0].label


def hardware_key(device: str) -> str:
    """Key of the hardware in a file of expectations: `NVIDIA H200 (9.0)`, or the CPU's model name."""
    machine = hardware()
    uuid = find_devices(device)[0].uuid
    for gpu in machine.gpus:
        if uuid is not None and gpu.uuid == uuid:
            return f"{gpu.name} ({gpu.capability})" if gpu.capability else gpu.name
    return machine.cpu


def configuration(request: PairsRequest, root: Path, device: str) -> dict[str, Any]:
    """The part of the request that the manifest records."""
    layers = {"config": request.config, "overrides": request.overrides}
    fields = {name: msgspec.to_builtins(layer) for name, layer in layers.items()}
    timeouts, settings = {}, {}
    for layer, values in fields.items():
        timeouts[layer] = {name: value for name, value in values.items() if "timeout" in name}
        settings[layer] = {name: value for name, value in values.items() if "timeout" not in name}
    return {
        "kind": "pairs",
        "root": str(root),
        "targets": None if request.targets is None else sorted(request.targets),
        "device": device,
        "hardware_key": hardware_key(device),
        "settings": settings,
        "timeouts": timeouts,
        "regression_threshold_pct": request.regression_threshold_pct,
        "jobs": request.jobs,
        "suite_timeout_seconds": request.suite_timeout_seconds,
    }


def remembered(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a resumed run's request, from its manifest; without the suite timeout."""
    layers = {
        name: {**configuration["settings"][name], **configuration["timeouts"][name]} for name in ("config", "overrides")
    }
    kept = ("targets", "device", "regression_threshold_pct", "jobs")
    try:
        return {
            "root": Path(configuration["root"]),
            **{name: configuration[name] for name in kept},
            **{name: msgspec.convert(values, BenchmarkConfig) for name, values in layers.items()},
        }
    except msgspec.ValidationError as error:
        raise UsageError(f"the run's options cannot be read ({error}). Give them again.") from error


def overlaid(below: BenchmarkConfig, above: BenchmarkConfig) -> BenchmarkConfig:
    """The settings of both layers. A field that both set has the value of `above`."""
    return msgspec.convert({**msgspec.to_builtins(below), **msgspec.to_builtins(above)}, BenchmarkConfig)


def duration_seconds(text: str) -> float:
    """``4h``, ``90m``, ``1h30m``, ``3600`` -> seconds; raises ValueError on anything else."""
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip().lower())
    whole = re.fullmatch(r"(\s*\d+(\.\d+)?\s*[a-z]*)+", text.strip().lower())
    if not whole or any(unit not in _UNITS for _, unit in parts) or (len(parts) > 1 and not all(u for _, u in parts)):
        raise ValueError(f"'{text}' is no duration. Write it like 4h, 90m, 1h30m or 3600.")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if seconds <= 0:
        raise ValueError(f"'{text}' is no duration above 0.")
    return seconds
