"""Compares a baseline with an optimized `.cu` file: builds both with nvcc, runs them in turn, reads their times."""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from torchstone.benchmarks import BenchmarkConfig
from torchstone.executors.devices import find_devices
from torchstone.harness.benchmark_process_messages import Block, Done, Load, Loaded, Reply, Request, TakeBlock
from torchstone.harness.pair_comparison import compare_sides
from torchstone.harness.pair_runner import PairOrder
from torchstone.harness.results import BenchmarkResult, Comparison, Side
from torchstone.harness.side_run import Layers, SideRun
from torchstone.judge_process.measuring_lane import MeasuringLane
from torchstone.processes import BoundedLog, ChildEndedError, ReplyTimeoutError, ending_in_words

RUNS = 10
"""Timed runs of each program, if no layer sets iterations. Each starts CUDA, which takes most of a second."""
_PRINTED = re.compile(rb"^\s*TIME_MS:\s*([0-9.eE+-]+)", re.MULTILINE)
_OUTPUT_BYTES = 1 << 20
"""Last bytes of a program's output that are read."""


class ProgramTransport:
    """Transport of one program: `Load` builds it, and each call of a block runs it once."""

    execution: Literal["process", "thread"] = "process"

    def __init__(self, nvcc: str, source: Path, program: Path, environment: Mapping[str, str], log_path: Path) -> None:
        self._nvcc = nvcc
        self._source = source
        self._program = program
        self._environment = dict(environment)
        self._log_path = log_path
        self._log = BoundedLog(log_path)
        self.prints_times = True
        """Whether every run so far has printed its time."""

    def ask(self, request: Request, deadline: float) -> Reply:
        match request:
            case Load():
                command = [self._nvcc, "-O3", "-std=c++17", "-arch=native", "-o", str(self._program)]
                self._run([*command, str(self._source)], deadline)
                return Loaded(BenchmarkConfig())
            case TakeBlock(calls=calls):
                return Block(tuple(self._time(deadline) for _ in range(calls)))
            case _:
                return Done()

    def _time(self, deadline: float) -> float:
        began = time.perf_counter_ns()
        printed = self._run([str(self._program)], deadline)
        wall_ms = (time.perf_counter_ns() - began) / 1e6
        found = _PRINTED.findall(printed)
        with contextlib.suppress(ValueError):
            if found and (value := float(found[-1])) > 0:
                return value
        self.prints_times = False
        return wall_ms

    def _run(self, command: list[str], deadline: float) -> bytes:
        """Run a command and return what it printed. Raises if it fails or takes too long. Its processes are killed."""
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                command,
                cwd=self._source.parent,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code = process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise ReplyTimeoutError from None
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                output.seek(max(0, output.seek(0, os.SEEK_END) - _OUTPUT_BYTES))
                printed = output.read()
                self._log.write(printed)
        if code != 0:
            raise ChildEndedError(f"({Path(command[0]).name}) {ending_in_words(code)}")
        return printed

    def limit_memory(self, limit_bytes: int | None) -> None:
        """Do nothing: the memory of a program is not limited."""

    def end(self) -> None:
        self._log.close()

    @property
    def log_tail(self) -> str:
        return self._log.tail

    @property
    def log_file(self) -> str:
        return str(self._log_path) if self._log.total_bytes else ""


def compare_cuda_files(order: PairOrder, lane_folder: Path | None = None) -> Comparison:
    """Build both, run them in turn, compare. Skipped where there is no nvcc or no CUDA device."""
    nvcc = _nvcc()
    missing = "" if order.device != "cpu" else "a .cu file needs a CUDA device; this runs on the CPU"
    missing = missing or ("" if nvcc else "nvcc is not on this machine: .cu files cannot be built")
    if missing or nvcc is None:
        skipped = BenchmarkResult(status="skipped", stage="load", skip_reason=missing)
        return Comparison(name=order.name, baseline=skipped, optimized=skipped)
    device = find_devices(order.device)[0]
    environment = {**os.environ, **device.environment()}
    layers = Layers(order.config, order.overrides, order.seed)
    with (
        tempfile.TemporaryDirectory(prefix="torchstone-cuda-") as folder,
        contextlib.closing(MeasuringLane(device.name, lane_folder)) as lane,
    ):
        files: dict[Side, Path] = {"baseline": order.baseline, "optimized": order.optimized}
        programs = {
            side: ProgramTransport(
                nvcc, path.resolve(), Path(folder) / side, environment, order.artifacts / f"{side}.log"
            )
            for side, path in files.items()
        }
        baseline, optimized = (SideRun(side, program, layers, order.device) for side, program in programs.items())
        sides = [baseline, optimized]
        for side in sides:
            side.load(_LOAD)
        with lane.exclusive():
            _take_turns(sides)
        notes = []
        if not all(program.prints_times for program in programs.values()):
            notes.append("timed as whole programs, start and end included: they print no line 'TIME_MS: x'")
        for side in sides:
            side.end()
        threshold = order.regression_threshold_pct
        return compare_sides(order.name, baseline, optimized, None, threshold, "interleaved", notes)


def _take_turns(sides: list[SideRun]) -> None:
    for side in sides:
        for _ in range(min(1, side.settings.warmup)):
            side.ask("warmup", TakeBlock(1), Block)
    runs = {side.side: side.settings.iterations if side.sets("iterations") else RUNS for side in sides}
    for number in range(max(runs.values())):
        for side in random.sample(sides, len(sides)):
            if number < runs[side.side] and not side.has_failed:
                block = side.ask("measurement", TakeBlock(1), Block)
                side.blocks += [] if block is None else [block]


def _nvcc() -> str | None:
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    return shutil.which("nvcc") or shutil.which(str(Path(home) / "bin" / "nvcc"))


_LOAD = Load(None, {}, "", "cuda", 0)
"""Request to build a program. Its fields are not used."""
