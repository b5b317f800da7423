"""Data classes of the harness: results of a benchmark, a pair and a run. Frozen, no torch.

A pair is a baseline benchmark and an optimized one. Each of the two is a side.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from torchstone.schema import FORMAT_VERSION, Manifest

Stage = Literal["load", "setup", "warmup", "measurement", "validation", "teardown", "profiling"]
"""The stages of a side, in their order. Each has its own deadline."""

SideStatus = Literal["succeeded", "failed", "timeout", "skipped"]
PairStatus = Literal["succeeded", "regression", "failed", "skipped"]
Side = Literal["baseline", "optimized"]


class TimingStats(msgspec.Struct, frozen=True):
    """Times per call of one side: the baseline or the optimized benchmark.

    All statistics are computed from `raw_times_ms`, which holds every sample.
    """

    mean_ms: float
    median_ms: float
    std_ms: float
    min_ms: float
    max_ms: float
    p25_ms: float
    p50_ms: float
    p75_ms: float
    p90_ms: float
    p95_ms: float
    p99_ms: float
    percentiles: dict[str, float]
    """Further percentiles that the configuration requests, in ms: `{"99.9": …}`."""
    iterations: int
    raw_times_ms: tuple[float, ...]
    """One per timed call, in the order in which they were taken. In the modes triton and pytorch, one per sample."""
    block_sizes: tuple[int, ...] = ()
    """Number of consecutive samples in each block; the sides take blocks in turn. Empty: all samples at once."""


class MemoryStats(msgspec.Struct, frozen=True):
    """Memory of one side during timing: of torch's allocator on CUDA, or resident memory of the process on a CPU."""

    peak_mb: float
    allocated_mb: float
    reserved_mb: float | None = None
    """None on a CPU."""


class LatencyStats(msgspec.Struct, frozen=True):
    """Times that `benchmark_fn` itself reported."""

    mean_ms: float
    p50_ms: float
    p90_ms: float
    p95_ms: float
    p99_ms: float
    count: int
    raw_times_ms: tuple[float, ...]


class InferenceStats(msgspec.Struct, frozen=True):
    """Latencies of an LLM workload, from the lists `ttft_times_ms` and `tpot_times_ms`."""

    ttft: LatencyStats | None = None
    """Time to first token, one per request."""
    tpot: LatencyStats | None = None
    """Time per output token, one per token."""


class StageWatch(msgspec.Struct, frozen=True):
    """How one stage went."""

    status: Literal["completed", "timeout", "failed", "skipped"]
    duration: float
    """Seconds, without waiting for the device's lane."""


class ProfilerMetrics(msgspec.Struct, frozen=True, omit_defaults=True):
    """Key figures of the profiled runs, which are never the timed ones. None: no profiler reported it."""

    profilers: dict[str, str] = {}
    """Profiler -> `profiled`, or why it gave nothing."""
    kernel_time_ms: float | None = None
    """Device time of all kernels of one call."""
    sm_throughput_pct: float | None = None
    """Percent of the multiprocessors' peak throughput, weighted by kernel time. The fields below are weighted, too."""
    memory_throughput_pct: float | None = None
    occupancy_pct: float | None = None
    l2_hit_pct: float | None = None


class BenchmarkResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one side: everything that is known, however it ended."""

    status: SideStatus
    stage: Stage | None = None
    """Where it failed, timed out or was skipped."""
    timing: TimingStats | None = None
    memory: MemoryStats | None = None
    inference: InferenceStats | None = None
    custom_metrics: dict[str, float] = {}
    errors: tuple[str, ...] = ()
    """Each says what happened in one line; the traceback is in `log_tail`."""
    skip_reason: str = ""
    timeout_stage: Stage | None = None
    timeout_duration_seconds: float | None = None
    timeout_limit_seconds: float | None = None
    suggestion: str = ""
    """What to do about a timeout or a failure, if a suggestion is known."""
    watchdog: dict[str, StageWatch] = {}
    """Stage -> how it went, for those that began."""
    profiler_metrics: ProfilerMetrics | None = None
    artifacts: dict[str, str] = {}
    """Kind (`torch`, `ncu`, `nsys`, `log`) -> path, relative to the run's folder."""
    mode: str = "custom"
    clock: Literal["events", "wall"] = "wall"
    """`events`: CUDA events around each call. `wall`: the host's clock, after the device has finished."""
    execution: Literal["process", "thread"] = "process"
    """`thread`: the class could not be imported again in a process of its own, so nothing could be killed."""
    notes: tuple[str, ...] = ()
    """What a reader should know: ignored configuration fields, which clock and why, how it was run."""
    seeds: dict[str, int] = {}
    config: dict[str, Any] = {}
    """The settings in force."""
    log_tail: str = ""
    """The end of what the benchmark printed, and tracebacks."""

    @property
    def succeeded(self) -> bool:
        return self.status == "succeeded"


class OutputComparison(msgspec.Struct, frozen=True):
    """How far the outputs of both sides are apart."""

    agrees: bool
    compared: int
    """Number of tensors that were compared."""
    worst: str
    """The tensor that is farthest apart, relative to what is allowed."""
    difference: float
    """As a share of the largest value of the baseline's tensor."""
    allowed: float
    message: str = ""
    """Why they do not agree, or why nothing was compared."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """A baseline against an optimized benchmark."""

    name: str
    baseline: BenchmarkResult
    optimized: BenchmarkResult
    speedup: float | None = None
    """Baseline time over optimized time. None unless both sides succeeded: a failure is never a number."""
    speedup_low: float | None = None
    """Lower end of the 95 % interval. None: too few samples for an interval."""
    speedup_high: float | None = None
    regression: bool = False
    """Whether the whole interval lies beyond the threshold."""
    regression_pct: float | None = None
    """By how much the optimized side is slower, in percent, where it is slower."""
    regression_threshold_pct: float = 5.0
    outputs: OutputComparison | None = None
    """None: not both sides offer an output."""
    taken: Literal["interleaved", "in sequence"] = "interleaved"
    """`in sequence`: both sides did not fit in memory together."""
    notes: tuple[str, ...] = ()

    @property
    def status(self) -> PairStatus:
        """`failed` if a side failed or outputs differ, `skipped` if one side was skipped and none failed."""
        sides = {self.baseline.status, self.optimized.status}
        wrong = self.outputs is not None and not self.outputs.agrees
        if sides & {"failed", "timeout"} or wrong:
            return "failed"
        if "skipped" in sides:
            return "skipped"
        return "regression" if self.regression else "succeeded"


class PairRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One pair that was run or skipped: one line of the run's journal."""

    key: str
    """Hash of chapter, file names and the contents of both files."""
    chapter: str
    example: str
    """What follows `baseline_` in the baseline's file name."""
    baseline_path: str
    """Relative to the root that was discovered."""
    optimized_path: str
    comparison: Comparison
    device: str
    manifest_key: str
    finished_unix_ns: int = 0
    seconds: float = 0.0
    """Wall time in the runner: all stages, profiling, and waiting for the device."""
    variant: str = ""
    """What follows the example's name in the optimized file: `sparse` in `optimized_moe_sparse.py`."""
    harness_error: str = ""
    """Why the harness itself failed, not a benchmark. A resumed run runs such a pair again."""
    format_version: int = FORMAT_VERSION
    kind: Literal["pair"] = "pair"

    @property
    def name(self) -> str:
        """`ch13/moe_sparse`: unique in a run."""
        return self.comparison.name

    @property
    def status(self) -> PairStatus:
        return self.comparison.status


class BenchmarkRun(msgspec.Struct, frozen=True, kw_only=True):
    """A result with the circumstances under which it was made."""

    run_id: str
    timestamp: str
    """UTC, ISO 8601."""
    manifest: Manifest
    result: BenchmarkResult
