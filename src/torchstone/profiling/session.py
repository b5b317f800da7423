"""Makes one profile: chooses kernel and case, makes the folder, runs each profiler, writes the results."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from torchstone import registry
from torchstone.atomic_files import write_atomically
from torchstone.backends import folder_name
from torchstone.executors.devices import find_devices
from torchstone.judge_process.measuring_lane import MeasuringLane
from torchstone.profiling.base import Profiler, Subject, unavailable
from torchstone.profiling.kernel_and_case import Chosen, choose
from torchstone.profiling.request import ProfileRequest, check
from torchstone.profiling.subject_messages import KernelOnCase
from torchstone.runs.devices import device_type, resolve_device
from torchstone.runs.folder import MANIFEST, writing_to
from torchstone.runs.interruption import Interruption
from torchstone.runs.manifest import collect
from torchstone.schema import Manifest, Profile, ProfilerResult, encode

PROFILE = "profile.json"
IMPLEMENTATION = "implementation.json"


class Profiled(NamedTuple):
    """The result of a request."""

    folder: Path
    profile: Profile


def profile(request: ProfileRequest, tell: Callable[[str], None]) -> Profiled:
    """Carry out the request. `tell` receives notices for the user, one line at a time."""
    request = check(request)
    device = find_devices(resolve_device(request.device))[0]
    chosen = choose(request, device_type(device.label))
    manifest = collect(_configuration(request, device.label))
    folder = _make_folder(request, chosen, manifest)
    subject = Subject(
        *(KernelOnCase(chosen.case, chosen.implementation), device, folder),
        calls=request.calls,
        threads=request.threads,
        isolation=request.isolation,
        seconds=request.seconds,
    )
    began = time.time_ns()
    results = _run_each(request.profilers, subject, tell)
    made = Profile(
        case=chosen.case,
        implementation=chosen.implementation.reference,
        device=device.label,
        calls=subject.calls,
        warmup_calls=subject.warmup_calls,
        threads=subject.threads,
        isolation=subject.isolation,
        results=results,
        manifest_key=manifest.key,
        began_unix_ns=began,
        ended_unix_ns=time.time_ns(),
    )
    with writing_to(folder, "profile folder"):
        write_atomically(folder / PROFILE, msgspec.json.format(encode(made)))
    return Profiled(folder, made)


def _configuration(request: ProfileRequest, device: str) -> dict[str, object]:
    asked = msgspec.to_builtins(request, enc_hook=str)
    return {**asked, "device": device}


def _make_folder(request: ProfileRequest, chosen: Chosen, manifest: Manifest) -> Path:
    """A fresh folder named after operator and time, with the source and the circumstances in it."""
    stamp = datetime.now().strftime(f"{folder_name(chosen.case.operator)}_%Y%m%d_%H%M%S")
    with writing_to(request.output_dir, "profile folder"):
        request.output_dir.mkdir(parents=True, exist_ok=True)
        folder = _fresh(request.output_dir, stamp)
        write_atomically(folder / MANIFEST, msgspec.json.format(encode(manifest)))
        write_atomically(folder / IMPLEMENTATION, encode(chosen.implementation))
    return folder


def _fresh(parent: Path, name: str) -> Path:
    for number in itertools.count(1):
        folder = parent / (name if number == 1 else f"{name}_{number}")
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            return folder
    raise AssertionError("counting ended")


def _run_each(names: tuple[str, ...], subject: Subject, tell: Callable[[str], None]) -> tuple[ProfilerResult, ...]:
    """Run each profiler, one after the other, alone on the device: a profiler disturbs a measurement there."""
    results = []
    with Interruption().watching(), contextlib.closing(MeasuringLane(subject.device.name)) as lane, lane.exclusive():
        for name in names:
            profiler: Profiler = registry.profilers.factory(name)()
            caution = getattr(profiler, "caution", None)
            if callable(caution) and (text := caution(subject)):
                tell(f"{name}: {text}")
            result = _run_profiler(name, profiler, subject)
            if result.notice:
                tell(f"{name}: {result.notice}")
            results.append(result)
    return tuple(results)


def profile_sandboxed(subject: Subject) -> ProfilerResult:
    """Profile with torch's profiler, in the sandbox, alone on the device. May be called from any thread."""
    with contextlib.closing(MeasuringLane(subject.device.name)) as lane, lane.exclusive():
        return _run_profiler("torch", registry.profilers.factory("torch")(), subject)


def _run_profiler(name: str, profiler: Profiler, subject: Subject) -> ProfilerResult:
    """Run one profiler. An `OSError` (disk full, no more processes) becomes its result, so that others still run."""
    try:
        return profiler.profile(subject)
    except OSError as error:
        return unavailable(name, f"the machine refused: {error}.")
