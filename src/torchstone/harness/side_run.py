"""The harness's handle on one side, a baseline or optimized benchmark: requests its stages, builds its result."""

from __future__ import annotations

import time
from typing import TypeVar

import msgspec

from torchstone.benchmarks import BenchmarkConfig, BenchmarkDefaults
from torchstone.benchmarks.config import merge
from torchstone.harness.benchmark_process_messages import (
    Block,
    Done,
    Failed,
    Load,
    Loaded,
    MeasurementReply,
    Reply,
    Request,
    Teardown,
    WarmupReply,
)
from torchstone.harness.host_memory_limit import OverMemoryError
from torchstone.harness.results import BenchmarkResult, MemoryStats, Side, SideStatus, Stage, StageWatch
from torchstone.harness.side_transports import Transport
from torchstone.harness.timing_stats import inference_stats, timing_stats
from torchstone.processes import ChildEndedError, ReplyTimeoutError

_LOG_TAIL_CHARACTERS = 4000
_LIMITS: dict[Stage, str] = {
    "load": "load_timeout_seconds",
    "setup": "setup_timeout_seconds",
    "warmup": "warmup_timeout_seconds",
    "measurement": "measurement_timeout_seconds",
    "validation": "setup_timeout_seconds",
    "teardown": "setup_timeout_seconds",
}
"""Stage -> setting with its time limit. Validation and teardown share the limit of setup."""

R = TypeVar("R", bound=Reply)


class Layers(msgspec.Struct, frozen=True):
    """Settings from outside the benchmark. Its own configuration overrides `config`; `overrides` override both."""

    config: BenchmarkConfig
    overrides: BenchmarkConfig
    seed: int


class SideRun:
    """Runs one side from its first stage to its result. After a failure, further stages do nothing, except teardown."""

    def __init__(self, side: Side, transport: Transport, layers: Layers, device: str) -> None:
        self.side: Side = side
        self.device = device
        self._transport = transport
        self._layers = layers
        self._own = BenchmarkConfig()
        self.settings = merge(layers.config, layers.overrides)
        self.status: SideStatus = "succeeded"
        self.stage: Stage | None = None
        self.is_alive = True
        """Whether its process can receive requests."""
        self.out_of_memory = False
        self.errors: list[str] = []
        self.notes: list[str] = []
        self._trace = ""
        self._skip_reason = ""
        self._suggestion = ""
        self._timeout: tuple[Stage, float, float] | None = None
        self._watchdog: dict[str, StageWatch] = {}
        self.warm_ms: tuple[float, ...] = ()
        self.blocks: list[Block] = []
        self.unseen_ms: float | None = None
        """Wall time of a call that CUDA events do not show. None: unknown, or on a CPU."""
        self.uses_events = False
        self.measured = MeasurementReply()
        self._memory: MemoryStats | None = None
        if transport.execution == "thread":
            self.notes.append(
                "ran in a thread of this process: no time limit was enforced, and its output was not kept"
            )

    # ---- settings

    @property
    def seed(self) -> int:
        return self._layers.seed if self.settings.seed is None else self.settings.seed

    def sets(self, field: str) -> bool:
        """Whether any layer sets the field."""
        layers = (self._layers.config, self._own, self._layers.overrides)
        return any(getattr(layer, field) is not None for layer in layers)

    def is_override(self, field: str) -> bool:
        return getattr(self._layers.overrides, field) is not None

    def limit_seconds(self, stage: Stage) -> float:
        return float(getattr(self.settings, _LIMITS[stage])) * self.settings.timeout_multiplier

    def spent_seconds(self, stage: Stage) -> float:
        return self._watchdog[stage].duration if stage in self._watchdog else 0.0

    def load(self, request: Load) -> None:
        """Load the benchmark: the first stage. Afterwards the settings in force are known."""
        self._transport.limit_memory(self.settings.memory_limit_bytes)
        loaded = self.ask("load", request, Loaded)
        if loaded is None:
            return
        self._own = loaded.config
        self.settings = merge(self._layers.config, loaded.config, self._layers.overrides)
        self._transport.limit_memory(self.settings.memory_limit_bytes)
        if loaded.ignored:
            self.notes.append(f"get_config: ignored {', '.join(loaded.ignored)}")

    def change(self, settings: BenchmarkDefaults, note: str) -> None:
        """Replace the settings by others than the layers give, and note why."""
        self.settings = settings
        self.notes.append(note)

    # ---- stages

    def ask(self, stage: Stage, request: Request, kind: type[R]) -> R | None:
        """Send a request, with the rest of the stage's time limit. None: it failed, or the side had failed before."""
        if not self.is_alive or (self.has_failed and stage != "teardown"):
            return None
        limit, before = self.limit_seconds(stage), self.spent_seconds(stage)
        began = time.monotonic()
        try:
            reply = self._transport.ask(request, began + max(0.0, limit - before))
        except ReplyTimeoutError:
            self._time_out(stage, before + time.monotonic() - began, limit)
            return None
        except ChildEndedError as error:
            self._fail(stage, f"its process {error} in {stage}", before + time.monotonic() - began)
            self.end()
            return None
        except OverMemoryError as error:
            self._fail(stage, f"memory: {error}", before + time.monotonic() - began)
            self._suggestion = "Make the workload smaller, or raise memory_limit_bytes."
            self.end()
            return None
        spent = before + time.monotonic() - began
        if isinstance(reply, Failed):
            self._take_failure(stage, reply, spent)
            return None
        assert isinstance(reply, kind), "the answer to this request"
        if self._watchdog.get(stage, StageWatch("completed", 0.0)).status == "completed":
            self._watchdog[stage] = StageWatch("completed", spent)
        return reply

    def take_warm_up(self, warmed: WarmupReply) -> None:
        self.warm_ms = warmed.times_ms
        self.unseen_ms = warmed.unseen_ms

    def tear_down(self) -> None:
        """Tear down and end the process. Also after the benchmark raised, since it may hold resources."""
        if self.is_alive and "setup" in self._watchdog:
            self.ask("teardown", Teardown(), Done)
        self.end()

    def fail(self, stage: Stage, message: str, suggestion: str = "") -> None:
        """Mark the side as failed for an outside reason, such as different outputs or an unusable mode."""
        self._fail(stage, message, self.spent_seconds(stage))
        self._suggestion = self._suggestion or suggestion

    def end(self) -> None:
        self.is_alive = False
        self._transport.end()

    @property
    def has_failed(self) -> bool:
        return self.status != "succeeded"

    def _fail(self, stage: Stage, message: str, spent: float, status: SideStatus = "failed") -> None:
        """Record a failure. Only the first one sets status and stage."""
        self.errors.append(message)
        self._watchdog[stage] = StageWatch("timeout" if status == "timeout" else "failed", spent)
        if self.has_failed:
            return
        self.status, self.stage = status, stage

    def _time_out(self, stage: Stage, spent: float, limit: float) -> None:
        first = not self.has_failed
        message = f"TIMEOUT: {stage} took longer than its limit of {limit:g} s; ended after {spent:.1f} s"
        self._fail(stage, message, spent, "timeout")
        if first:
            self._timeout = stage, spent, limit
            self._suggestion = _timeout_suggestion(stage)
        self.end()

    def _take_failure(self, stage: Stage, reply: Failed, spent: float) -> None:
        self._trace += reply.trace
        self._memory = reply.memory or self._memory
        if reply.skip_reason and not self.has_failed:
            self.status, self.stage, self._skip_reason = "skipped", stage, reply.skip_reason
            self._watchdog[stage] = StageWatch("skipped", spent)
            return
        self.out_of_memory = self.out_of_memory or reply.out_of_memory
        self._fail(stage, reply.message, spent)
        if reply.out_of_memory:
            self._suggestion = self._suggestion or "Make the workload smaller, or use a device with more memory."

    # ---- the result

    def result(self) -> BenchmarkResult:
        """Everything that is known, however it ended."""
        timing = timing_stats(self.blocks, self.settings.percentiles)
        stage, duration, limit = self._timeout or (None, None, None)
        log_file = self._transport.log_file
        return BenchmarkResult(
            status=self.status,
            stage=self.stage,
            timing=timing,
            memory=self.measured.memory or self._memory,
            inference=inference_stats(self.measured.ttft_times_ms, self.measured.tpot_times_ms),
            custom_metrics=self.measured.custom_metrics,
            errors=tuple(self.errors),
            skip_reason=self._skip_reason,
            timeout_stage=stage,
            timeout_duration_seconds=duration,
            timeout_limit_seconds=limit,
            suggestion=self._suggestion,
            watchdog=dict(self._watchdog),
            artifacts={"log": log_file} if log_file else {},
            mode=self.settings.mode.value,
            clock="events" if self.uses_events else "wall",
            execution=self._transport.execution,
            notes=(*self.notes, *self.measured.notes),
            seeds=dict.fromkeys(("random", "numpy", "torch", "cuda"), self.seed),
            config=msgspec.json.decode(msgspec.json.encode(self.settings)),
            log_tail=(self._transport.log_tail + self._trace)[-_LOG_TAIL_CHARACTERS:],
        )


def _timeout_suggestion(stage: Stage) -> str:
    setting = _LIMITS.get(stage, f"{stage}_timeout_seconds")
    what = {
        "load": "Move work out of the module's top level",
        "measurement": "Lower iterations, or make one call shorter",
        "warmup": "Lower warmup, or compile in setup",
    }.get(stage, "Make it do less")
    return f"{what}; or raise {setting} or the timeout multiplier."
