"""Profiles a baseline and an optimized benchmark in separate runs after timing; adds metrics and files to the results.

torch's profiler traces in a fork of the process that has imported torch. ncu and nsys start a process themselves. A
failure here is a note on the result. The measured times stay as they are.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from torchstone.benchmarks import BenchmarkDefaults
from torchstone.errors import TorchstoneError
from torchstone.executors.devices import Device, find_devices
from torchstone.harness.benchmark_process_messages import Failed, FileSource, Load, Reply, Trace
from torchstone.harness.fork_server import ForkServer
from torchstone.harness.host_memory_limit import OverMemoryError
from torchstone.harness.pair_runner import PairOrder
from torchstone.harness.pair_session import device_variables
from torchstone.harness.profiler_metrics import metrics_of
from torchstone.harness.results import BenchmarkResult, Comparison, Side, StageWatch
from torchstone.harness.side_transports import ProcessTransport
from torchstone.judge_process.measuring_lane import MeasuringLane
from torchstone.processes import ChildEndedError, ReplyTimeoutError
from torchstone.profiling import BenchmarkFile, Subject
from torchstone.profiling.chrome_trace import NotATraceError, kernels_of
from torchstone.profiling.nsight import profile_with
from torchstone.profiling.nsight_compute import COUNTERS_REFUSED
from torchstone.profiling.nsight_compute import TOOL as NCU
from torchstone.profiling.nsight_systems import TOOL as NSYS
from torchstone.profiling.torch_profiler import FILE as TORCH_FILE
from torchstone.schema import ProfilerResult

CALLS = {"torch": 3, "nsys": 3, "ncu": 1}
"""Profiler -> calls that it profiles. Only one for ncu, which replays every kernel many times."""
WARMUP_CALLS = 1
_LIMITS = {"torch": "profiling_timeout_seconds", "nsys": "nsys_timeout_seconds", "ncu": "ncu_timeout_seconds"}
_TOOLS = {"nsys": NSYS, "ncu": NCU}
MOST_TRACE_BYTES = 256 << 20
"""Largest trace that is read. A larger file is kept: decoding takes several times its size in memory."""


class _Profiled(NamedTuple):
    """Result of one profiler."""

    result: ProfilerResult
    seconds: float
    """Time without waiting for the device's lane."""
    overran: bool = False


class _Run(NamedTuple):
    """One side that is to be profiled."""

    order: PairOrder
    path: Path
    timed: BenchmarkResult
    settings: BenchmarkDefaults
    device: Device
    folder: Path

    @property
    def seed(self) -> int:
        return self.timed.seeds["torch"]

    def limit_seconds(self, profiler: str) -> float:
        return float(getattr(self.settings, _LIMITS[profiler])) * self.settings.timeout_multiplier


class ProfilingStep:
    """Profiles the sides of timed pairs. All pairs of a run share one object, from several threads."""

    def __init__(self, tell: Callable[[str], None], lane_folder: Path | None = None) -> None:
        """`tell` gets one line for each tool that this machine lacks, once."""
        self._tell = tell
        self._lane_folder = lane_folder
        self._unusable: dict[str, ProfilerResult] = {}
        self._lock = threading.Lock()

    def __call__(self, order: PairOrder, found: Comparison, fork_server: ForkServer) -> Comparison:
        """The comparison with metrics and files of every side that succeeded and did not switch profiling off."""
        sides: dict[Side, Path] = {"baseline": order.baseline, "optimized": order.optimized}
        profiled = {}
        for side, path in sides.items():
            timed: BenchmarkResult = getattr(found, side)
            settings = msgspec.convert(timed.config, BenchmarkDefaults)
            if timed.succeeded and settings.enable_profiling:
                device = find_devices(order.device)[0]
                run = _Run(order, path.resolve(), timed, settings, device, order.artifacts.resolve() / side)
                profiled[side] = self._profile(run, fork_server)
        return msgspec.structs.replace(found, **profiled)

    def _profile(self, run: _Run, fork_server: ForkServer) -> BenchmarkResult:
        run.folder.mkdir(parents=True, exist_ok=True)
        seen = {"torch": self._with_torch(run, fork_server)}
        if run.device.kind == "cuda" and _launches_kernels(seen["torch"].result):
            seen |= {name: self._with_tool(run, name) for name in _TOOLS if getattr(run.settings, f"enable_{name}")}
        results = {name: each.result for name, each in seen.items()}
        files = {name: str(run.folder / result.files[0]) for name, result in results.items() if result.files}
        notes = [f"profiling with {name}: {each.notice}" for name, each in results.items() if _needs_note(each)]
        return msgspec.structs.replace(
            run.timed,
            profiler_metrics=metrics_of(results, CALLS),
            artifacts={**run.timed.artifacts, **files},
            notes=(*run.timed.notes, *notes),
            watchdog={**run.timed.watchdog, "profiling": _watch(list(seen.values()))},
        )

    def _with_torch(self, run: _Run, fork_server: ForkServer) -> _Profiled:
        try:
            with contextlib.closing(MeasuringLane(run.device.name, self._lane_folder)) as lane:
                return _trace(run, fork_server, lane)
        except (TorchstoneError, OSError) as error:
            return _Profiled(ProfilerResult("torch", "unavailable", f"the machine refused: {error}"), 0.0)

    def _with_tool(self, run: _Run, name: str) -> _Profiled:
        if name in self._unusable:
            return _Profiled(self._unusable[name], 0.0)
        limit = run.limit_seconds(name)
        what = BenchmarkFile(
            path=str(run.path),
            root=str(run.order.root.resolve()),
            seed=run.seed,
            deterministic=run.settings.deterministic,
            marks_ranges=run.settings.enable_nvtx,
            variables=device_variables(run.device),
        )
        subject = Subject(what, run.device, run.folder, calls=CALLS[name], warmup_calls=WARMUP_CALLS, seconds=limit)
        try:
            with contextlib.closing(MeasuringLane(run.device.name, self._lane_folder)) as lane, lane.exclusive():
                began = time.monotonic()
                result = profile_with(_TOOLS[name], subject)
        except (TorchstoneError, OSError) as error:
            return _Profiled(ProfilerResult(name, "unavailable", f"the machine refused: {error}"), 0.0)
        spent = time.monotonic() - began
        if result.status == "absent" or result.notice == COUNTERS_REFUSED:
            self._mark_unusable(name, result)
        return _Profiled(result, spent, overran=result.status == "failed" and spent >= limit)

    def _mark_unusable(self, name: str, result: ProfilerResult) -> None:
        """Do not use the tool again in this run, and report that once."""
        with self._lock:
            if name in self._unusable:
                return
            self._unusable[name] = result
        self._tell(f"profiling with {name}: {result.notice} Timing and other profilers go on.")


def _launches_kernels(traced: ProfilerResult) -> bool:
    """Whether ncu and nsys may see kernels: True if the trace shows device work, or was not read."""
    read = traced.status == "profiled" and not traced.notice
    return not read or any(kernel.kind != "operator" for kernel in traced.kernels)


def _needs_note(result: ProfilerResult) -> bool:
    """Whether the result gets a note. A missing or refused tool was reported once for the whole run."""
    return bool(result.notice) and result.status != "absent" and result.notice != COUNTERS_REFUSED


def _watch(seen: list[_Profiled]) -> StageWatch:
    status: Literal["completed", "timeout", "failed"] = "completed"
    if any(each.result.status == "failed" for each in seen):
        status = "failed"
    if any(each.overran for each in seen):
        status = "timeout"
    return StageWatch(status, sum(each.seconds for each in seen))


def _trace(run: _Run, fork_server: ForkServer, lane: MeasuringLane) -> _Profiled:
    """Trace a few calls to a Chrome trace. Loading needs no lane; the calls hold the device's lane exclusively."""
    limit = run.limit_seconds("torch")
    spent = 0.0
    transport = ProcessTransport(fork_server, None)
    try:
        transport.limit_memory(run.settings.memory_limit_bytes)
        with _elapsed_seconds() as loading:
            reply = transport.ask(_load(run), time.monotonic() + limit)
        spent = loading[0]
        if not isinstance(reply, Failed):
            with lane.exclusive(), _elapsed_seconds() as tracing:
                reply = transport.ask(_order(run), time.monotonic() + max(0.0, limit - spent))
            spent += tracing[0]
    except ReplyTimeoutError:
        return _Profiled(_failed(f"it did not end within {limit:g} s. Raise {_LIMITS['torch']}."), limit, overran=True)
    except (ChildEndedError, OverMemoryError) as error:
        return _Profiled(_failed(f"its process {error}" if isinstance(error, ChildEndedError) else str(error)), spent)
    finally:
        transport.end()
    return _Profiled(_read(reply, run), spent)


@contextlib.contextmanager
def _elapsed_seconds() -> Iterator[list[float]]:
    began = time.monotonic()
    passed = [0.0]
    yield passed
    passed[0] = time.monotonic() - began


def _load(run: _Run) -> Load:
    return Load(
        FileSource(str(run.path), str(run.order.root.resolve())),
        {**os.environ, **device_variables(run.device)},
        str(Path.cwd()),
        run.order.device,
        run.seed,
        deterministic=run.settings.deterministic,
    )


def _order(run: _Run) -> Trace:
    return Trace(run.settings, run.seed, WARMUP_CALLS, CALLS["torch"], str(run.folder / TORCH_FILE))


def _failed(notice: str) -> ProfilerResult:
    return ProfilerResult("torch", "failed", notice, sandboxed=False)


def _read(reply: Reply, run: _Run) -> ProfilerResult:
    if isinstance(reply, Failed):
        return _failed(f"the benchmark failed: {reply.message}")
    path = run.folder / TORCH_FILE
    kept = ProfilerResult("torch", "profiled", files=(TORCH_FILE,), sandboxed=False)
    if path.stat().st_size > MOST_TRACE_BYTES:
        notice = f"the trace has {path.stat().st_size >> 20} MiB; it is kept, but no metrics were read from it."
        return msgspec.structs.replace(kept, notice=notice)
    try:
        return msgspec.structs.replace(kept, kernels=tuple(kernels_of(path.read_bytes())))
    except NotATraceError as error:
        return msgspec.structs.replace(kept, notice=f"the trace is kept, but cannot be read: {error}.")
