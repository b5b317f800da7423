"""Profiles a sweep after it was timed, in separate processes, so that no time changes.

torch's profiler sees every point. By default ncu and nsys see one point of each operation and implementation, the
largest that was timed. On request they see every point.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from torchstone.errors import UsageError, unknown_name
from torchstone.profiling.base import with_kernels
from torchstone.profiling.external_tools import Ended, find_tool, run
from torchstone.profiling.nsight import Tool, UnreadableTableError
from torchstone.profiling.nsight_compute import TOOL as NCU
from torchstone.profiling.nsight_systems import TOOL as NSYS
from torchstone.schema import ProfilerResult, encode
from torchstone.schema.sweep import SweepRecord
from torchstone.sweeps.process_messages import Open
from torchstone.sweeps.profile_request import TABLE, TRACE, ProfiledCall, SweepProfiler, SweepProfileRequest

PROFILERS: tuple[SweepProfiler, ...] = ("torch", "ncu", "nsys")
SECONDS = 900.0
"""Longest time of each profiler. ncu replays every kernel many times."""
_TOOLS = {"ncu": NCU, "nsys": NSYS}
_READ_SECONDS = 120.0
_TABLE_BYTES = 64 << 20
_GRACE_SECONDS = 30.0


def profilers_named(names: Iterable[str]) -> tuple[SweepProfiler, ...]:
    """Checked names, each once."""
    found: dict[SweepProfiler, None] = {}
    for name in names:
        known = [profiler for profiler in PROFILERS if profiler == name.lower()]
        if not known:
            raise unknown_name("profiler", name, PROFILERS)
        found[known[0]] = None
    return tuple(found)


def profiles_path(output: Path) -> Path:
    """The folder of the profiles."""
    return output.with_name(f"{output.name.removesuffix('.json')}.profiles")


def chosen_calls(records: Sequence[SweepRecord], every_point: bool) -> tuple[ProfiledCall, ...]:
    """The calls to profile: every timed one, or for each operation and implementation the largest."""
    found: dict[object, ProfiledCall] = {}
    for record in sorted(records, key=_elements) if not every_point else records:
        for timing in record.timings:
            call = ProfiledCall(record.point, timing.implementation)
            found[call if every_point else (record.point.operation, timing.implementation)] = call
    return tuple(found.values())


def _elements(record: SweepRecord) -> int:
    point = record.point
    return point.batch_size * point.sequence_length * point.tensor_dimension


def profile_sweep(
    opening: Open,
    records: Sequence[SweepRecord],
    profilers: Sequence[SweepProfiler],
    every_point: bool,
    folder: Path,
    tell: Callable[[str], None],
) -> tuple[ProfilerResult, ...]:
    """Run the profilers and return their results. `tell` receives each notice."""
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make {folder}: {error.strerror}.") from error
    results = []
    for profiler in profilers:
        calls = chosen_calls(records, every_point or profiler == "torch")
        result = _profiled(
            SweepProfileRequest(opening, calls, profiler, str(folder.absolute()), math.ceil(SECONDS)), folder
        )
        if result.notice:
            tell(f"profiling with {profiler}: {result.notice}")
        results.append(result)
    return tuple(results)


def _profiled(order: SweepProfileRequest, folder: Path) -> ProfilerResult:
    tool = _TOOLS.get(order.profiler)
    if tool is None:
        return _under_torch(order)
    path = find_tool(tool.name)
    if path is None:
        notice = f"not on this machine. Install NVIDIA {tool.product}, or put {tool.name} on the PATH."
        return ProfilerResult(tool.name, "absent", notice)
    if order.opening.device_type != "cuda":
        return ProfilerResult(
            tool.name, "unavailable", "it profiles CUDA kernels only, and the device is the CPU. Use torch."
        )
    return _under_tool(order, tool, path, folder)


def _under_torch(order: SweepProfileRequest) -> ProfilerResult:
    ended = _run(order, [])
    if ended.exit_code != 0:
        return ProfilerResult("torch", "failed", _what_it_said(ended))
    return ProfilerResult("torch", "profiled", files=(TABLE, TRACE))


def _under_tool(order: SweepProfileRequest, tool: Tool, path: str, folder: Path) -> ProfilerResult:
    """Run the calls under ncu or nsys. The report is kept even if its table cannot be read."""
    report = folder.absolute() / tool.name
    ended = _run(order, tool.launching(path, report))
    kept = report.with_name(f"{report.name}{tool.suffix}")
    if not kept.is_file():
        refusal = next((advice for mark, advice in tool.refusals.items() if mark in ended.output), "")
        return ProfilerResult(tool.name, "unavailable", refusal or _what_it_said(ended))
    result = ProfilerResult(tool.name, "profiled", files=(kept.name,))
    told = run(tool.reading(path, kept), os.environ, folder, _READ_SECONDS, _TABLE_BYTES)
    try:
        return with_kernels(result, tool.parse(told.output))
    except UnreadableTableError as error:
        return msgspec.structs.replace(result, notice=f"the report is kept, its table cannot be read: {error}.")


def _run(order: SweepProfileRequest, launching: Sequence[str]) -> Ended:
    """Run the process that makes the calls, under the tool's command if there is one."""
    with tempfile.TemporaryDirectory(prefix="torchstone-profile-") as scratch:
        path = Path(scratch) / "order.json"
        opening = msgspec.structs.replace(order.opening, last_step_file=str(Path(scratch) / "stage"))
        path.write_bytes(encode(msgspec.structs.replace(order, opening=opening)))
        command = [*launching, sys.executable, "-P", "-m", "torchstone.sweeps.profiled_process", str(path)]
        environment = {**os.environ, "LC_ALL": "C.UTF-8", **order.opening.environment}
        return run(command, environment, Path.cwd(), SECONDS + _GRACE_SECONDS)


def _what_it_said(ended: Ended) -> str:
    if ended.exit_code is None:
        return f"it did not end within {SECONDS:.0f} s. Profile fewer points."
    lines = [line.strip() for line in ended.output.splitlines() if line.strip()]
    return f"it ended with exit code {ended.exit_code}" + (f": {lines[-1]}" if lines else ".")
