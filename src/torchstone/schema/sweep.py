"""Data classes of a sweep, which times operations over a grid of sizes: results of a point, rows of the output."""

from __future__ import annotations

from typing import Literal

import msgspec

from torchstone.schema.codec import FORMAT_VERSION
from torchstone.schema.measurement import SpeedOfLight

SweepMode = Literal["fwd", "bwd", "fwd+bwd"]


class SweepPoint(msgspec.Struct, frozen=True):
    """One operation at one point of the grid: its sizes, dtype and mode."""

    operation: str
    """As in the output: `LayerNorm`, `GELU`, `Swish`, `MSE`, `CrossEntropy`, or the name of the user's own."""
    batch_size: int
    sequence_length: int
    tensor_dimension: int
    dtype: str
    """`float32`, `float16`, `bfloat16`."""
    mode: SweepMode


class SweepTiming(msgspec.Struct, frozen=True):
    """The samples of one implementation at one point."""

    implementation: str
    """As in the output: `PyTorch`, `Compile`, `CUDA`, `Triton`, `Liger`, or the name of the user's own."""
    samples_ns: tuple[float, ...]
    """Mean time per call of each timed block, in the order in which the blocks were taken."""
    calls_per_sample: int
    memory_bytes: int
    """Peak memory during one call, including arguments and results."""


class SweepSkip(msgspec.Struct, frozen=True):
    """An implementation that was not timed at a point."""

    implementation: str
    reason: str


class SweepRecord(msgspec.Struct, frozen=True, kw_only=True):
    """All results of one point: a line of the sweep's journal. Rows, tables and plots are computed from it."""

    format_version: int = FORMAT_VERSION
    kind: Literal["sweep"] = "sweep"
    point: SweepPoint
    device: str
    """Name of the device."""
    timings: tuple[SweepTiming, ...] = ()
    skips: tuple[SweepSkip, ...] = ()
    light: SpeedOfLight | None = None
    """Work of one call, and the ceilings measured on this device. None: the work is not known."""
    seconds: float = 0.0
    """Total time of the point."""


class SweepRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the output list."""

    operation: str
    implementation: str
    batch_size: int
    sequence_length: int
    tensor_dimension: int
    mode: SweepMode
    dtype: str
    time_ms: float
    """Estimate of the mean device time per call on cold caches."""
    interval_low_ms: float
    interval_high_ms: float
    """95 % confidence interval of `time_ms`."""
    memory_mb: float
    """Peak memory during one call, in 10^6 bytes."""
    inference_speed: float
    """Calls per second: 1000 / time_ms."""
    gpu_efficiency: float | None
    """Percent of the measured limit of this device, not clipped; None: the work is not known."""
    throughput_gbps: float | None
    """Bytes that the operator must move, divided by the time, in 10^9 bytes per second."""


class SkippedRow(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of `<output>.skipped.json`: an implementation that was not timed, and why."""

    operation: str
    implementation: str
    batch_size: int
    sequence_length: int
    tensor_dimension: int
    mode: SweepMode
    dtype: str
    reason: str
