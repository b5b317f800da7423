"""Carries out the stages of one benchmark of a pair, in the process that runs it, one request at a time.

The same code serves a process of its own and, where a class cannot be imported again, a thread of the caller's.
"""

from __future__ import annotations

import contextlib
import gc
import os
import statistics
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import torch

from torchstone.benchmarks.loading import BenchmarkLoadError, load_benchmark
from torchstone.benchmarks.parse_get_config import ConfigError, read_config
from torchstone.benchmarks.profiled_calls import marked, trace_calls
from torchstone.benchmarks.protocol import SkipBenchmark
from torchstone.benchmarks.seeding import be_deterministic, seed_everything
from torchstone.harness import process_state
from torchstone.harness.benchmark_process_messages import (
    Block,
    Done,
    EndMeasurement,
    Failed,
    FileSource,
    Load,
    Loaded,
    MeasurementReply,
    Outputs,
    Reply,
    Request,
    Setup,
    TakeBlock,
    TakeTurn,
    Teardown,
    Trace,
    Validate,
    Warmup,
    WarmupReply,
)
from torchstone.harness.object_transfer import restore
from torchstone.harness.reported_metrics import ReportedMetrics
from torchstone.harness.requirements import unmet_requirement
from torchstone.harness.saved_outputs import save_output
from torchstone.harness.timers import CallTimer, take_pytorch_samples, take_triton_samples

SKIPPED = "SKIPPED:"
"""An error whose message begins like this means that the benchmark does not apply here."""
_TRACE_CHARACTERS = 8000
_EMPTY_CALLS = 9
"""Empty calls from which the cost of waiting for the device is estimated."""


class SideSession:
    """Carries out requests on one benchmark object, and holds its state between requests."""

    request_type: ClassVar[object] = Request

    def __init__(self, owns_process: bool = True, benchmark: Any = None) -> None:
        """`owns_process`: environment, cores and torch's global settings may be changed and need not be restored."""
        self._owns_process = owns_process
        self._is_cuda = False
        self._benchmark = benchmark
        self._timer = CallTimer(is_cuda=False)
        self._metrics = ReportedMetrics()
        self._memory: process_state.MemoryWatch | None = None
        self._tracks_memory = True
        self._outputs: Outputs | None = None
        self._outputs_path = ""
        self._kept_bytes = 0
        self._calls = 0
        self._threads = 1
        self._determinism: process_state.Determinism | None = None

    def handle(self, request: Request) -> Reply:
        """Carry out a request. An exception of the benchmark becomes a reply."""
        try:
            return self._carry_out(request)
        except BaseException as error:  # noqa: BLE001 - SystemExit and KeyboardInterrupt are the benchmark's too
            return self._failure(error)

    def _carry_out(self, request: Request) -> Reply:
        match request:
            case Load():
                return self._load(request)
            case Setup():
                return self._setup(request)
            case Warmup():
                return self._warm_up(request)
            case TakeBlock():
                return self._take_block(request)
            case TakeTurn():
                return self._take_turn(request)
            case EndMeasurement():
                return self._end_measurement()
            case Validate():
                return self._validate()
            case Teardown():
                self._benchmark.teardown()
                self._synchronize()
                return Done()
            case Trace():
                return self._trace(request)

    def _load(self, request: Load) -> Reply:
        self._is_cuda = request.device != "cpu"
        if self._owns_process:
            os.environ.clear()
            os.environ.update(request.environment)
            os.chdir(request.folder)
            before = os.sched_getaffinity(0)
            if request.cores:
                process_state.stay_on(request.cores)
        if request.deterministic:
            self._be_deterministic()
        seed_everything(request.seed)
        if self._benchmark is None:
            source = request.source
            assert source is not None, "a process of its own has no object yet"
            self._benchmark = (
                load_benchmark(source.path, source.root) if isinstance(source, FileSource) else restore(source)
            )
        getter = getattr(self._benchmark, "get_config", None)
        config, ignored = read_config(getter() if callable(getter) else None)
        if self._owns_process:
            process_state.stay_on(before)
        return Loaded(config, ignored)

    def _setup(self, request: Setup) -> Reply:
        settings = request.settings
        unmet = unmet_requirement(settings, self._is_cuda)
        if unmet:
            raise SkipBenchmark(unmet)
        if settings.deterministic:
            self._be_deterministic()
        self._threads = settings.threads
        if self._owns_process and not self._is_cuda:
            torch.set_num_threads(settings.threads)
        if settings.enable_cleanup:
            process_state.reset_gpu_state()
        self._tracks_memory = settings.enable_memory_tracking
        self._timer = CallTimer(self._is_cuda, all_devices=settings.min_devices > 1)
        seed_everything(request.seed)
        self._benchmark.setup()
        self._synchronize()
        return Done()

    def _be_deterministic(self) -> None:
        if not self._owns_process and self._determinism is None:
            self._determinism = process_state.Determinism()
        be_deterministic()

    def put_back_settings(self) -> None:
        """Restore torch's settings if the process is the caller's. May be called from any thread, at any time."""
        held, self._determinism = self._determinism, None
        if held is not None:
            held.put_back()

    def _warm_up(self, request: Warmup) -> Reply:
        self._outputs_path = request.outputs
        times: list[float] = []
        unseen: list[float] = []
        for number in range(request.calls):
            if number and self._is_cuda:
                wall_ms, unseen_ms = self._timer.unseen_ms(self._benchmark.benchmark_fn)
                times.append(wall_ms)
                unseen.append(unseen_ms)
                continue
            times += self._take_single().times_ms
            if number == 0:  # only after the first call, which may compile on all cores
                self._pin_to(request.cores)
        self._pin_to(request.cores)
        gc.collect()
        return WarmupReply(tuple(times), self._median_minus_empty_call(unseen))

    def _median_minus_empty_call(self, unseen_ms: list[float]) -> float | None:
        """Median of these times, minus the median for an empty call; None without times."""
        if not unseen_ms:
            return None
        waiting = [self._timer.unseen_ms(lambda: None)[1] for _ in range(_EMPTY_CALLS)]
        return statistics.median(unseen_ms) - statistics.median(waiting)

    def _pin_to(self, cores: tuple[int, ...]) -> None:
        if self._owns_process and cores:
            process_state.stay_on(cores)

    def _after_call(self, returned: Any) -> None:
        """Count a call, and keep the output of the first, which both sides make from the same state."""
        self._calls += 1
        if self._calls == 1 and self._outputs_path:
            held = torch.cuda.memory_allocated() if self._is_cuda else 0
            self._outputs = save_output(self._benchmark, returned, Path(self._outputs_path))
            if self._is_cuda:  # copies that a benchmark keeps of its output are not its own memory
                self._kept_bytes = max(0, torch.cuda.memory_allocated() - held)

    def _take_block(self, request: TakeBlock) -> Reply:
        self._begin_measurement()
        call = self._benchmark.benchmark_fn
        if request.by_events:
            stays = self._owns_process and request.cores
            with process_state.caller_on(request.cores) if stays else contextlib.nullcontext():
                return self._timer.take_queued(call, request.calls, self._metrics.add, request.leads_in)
        first, calls = Block(()), request.calls
        if self._calls == 0:  # there was no warm-up: its first call is timed, and its output kept
            first, calls = self._take_single(self._metrics.add), calls - 1
        rest = self._timer.take(call, calls, self._metrics.add)
        return Block(first.times_ms + rest.times_ms)

    def _take_single(self, report: Callable[[Any], None] = lambda returned: None) -> Block:
        """Time one call by the host's clock. If it is the first, its output is kept."""
        returned: list[Any] = []
        block = self._timer.take(self._benchmark.benchmark_fn, 1, returned.append)
        found = returned[0] if returned else None
        report(found)
        self._after_call(found)
        return block

    def _take_turn(self, request: TakeTurn) -> Reply:
        self._begin_measurement()
        if self._calls == 0:
            self._after_call(self._benchmark.benchmark_fn())

        def call() -> None:
            self._metrics.add(self._benchmark.benchmark_fn())

        if request.mode == "triton":
            return Block(take_triton_samples(call, request.milliseconds))
        return Block(take_pytorch_samples(call, request.milliseconds, self._threads))

    def _begin_measurement(self) -> None:
        if self._memory is None and self._tracks_memory:
            self._memory = process_state.MemoryWatch(self._is_cuda)

    def _end_measurement(self) -> Reply:
        memory = None if self._memory is None else self._memory.stats(self._kept_bytes)
        self._metrics.ask(self._benchmark)
        return MeasurementReply(
            memory,
            tuple(self._metrics.ttft_times_ms),
            tuple(self._metrics.tpot_times_ms),
            self._metrics.custom_metrics(),
            self._outputs,
            tuple(self._metrics.notes),
        )

    def _validate(self) -> Reply:
        validate = getattr(self._benchmark, "validate_result", None)
        text = validate() if callable(validate) else None
        if isinstance(text, str) and text.startswith(SKIPPED):
            raise SkipBenchmark(text)
        if isinstance(text, str) and text:
            return Failed(f"validate_result: {text}")
        return Failed("validate_result returned False") if text is False else Done()

    def _trace(self, request: Trace) -> Reply:
        """Run all stages under torch's profiler, without timing."""
        marks = self._is_cuda and request.settings.enable_nvtx
        with marked("setup", marks):
            self._setup(Setup(request.settings, request.seed))
        try:
            trace_calls(self._benchmark, Path(request.path), request.warmup_calls, request.calls, self._is_cuda, marks)
        finally:
            self._benchmark.teardown()
        return Done()

    def _synchronize(self) -> None:
        self._timer.synchronize()

    def _failure(self, error: BaseException) -> Failed:
        memory = None
        if self._memory is not None:
            with contextlib.suppress(Exception):  # a device that has failed may not answer
                memory = self._memory.stats(self._kept_bytes)
        trace = "".join(traceback.format_exception(error))[-_TRACE_CHARACTERS:]
        return Failed(_message(error), trace, _skip_reason(error), _is_out_of_memory(error), memory)


def _message(error: BaseException) -> str:
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    if isinstance(error, (BenchmarkLoadError, ConfigError)):
        return text
    return f"{type(error).__name__}: {text}" if text else f"raised {type(error).__name__}"


def _skip_reason(error: BaseException) -> str:
    """The reason if the error means a skip, else empty. `SkipBenchmark` of another harness counts, by its name."""
    text = str(error).strip()
    if any(kind.__name__ == "SkipBenchmark" for kind in type(error).__mro__):
        return text.removeprefix(SKIPPED).strip() or "no reason given"
    return text.removeprefix(SKIPPED).strip() or "no reason given" if text.startswith(SKIPPED) else ""


def _is_out_of_memory(error: BaseException) -> bool:
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or (
        isinstance(error, RuntimeError) and "out of memory" in str(error).lower()
    )
