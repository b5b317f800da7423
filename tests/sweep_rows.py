"""Synthetic rows of a sweep, made by a formula: no figure in them was measured.

An implementation takes a time to start, then moves its bytes at a share of the device's bandwidth that depends on the
dimension. Samples are spread by a seeded generator.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence

from torchstone.schema import SkippedRow, SpeedOfLight, SweepPoint, SweepRecord, SweepRow, SweepTiming

BATCHES, LENGTHS, DIMENSIONS = (16, 32, 64, 128), (256, 512, 1024, 2048), (8, 16, 32, 64, 128, 256, 512)
OPERATIONS = ("LayerNorm", "GELU", "Swish", "MSE", "CrossEntropy")
IMPLEMENTATIONS = ("PyTorch", "CUDA", "Triton")
DEVICE = "Synthetic GPU"
BANDWIDTH = 4e12
LATENCY_NS = 2_000.0
_START_NS = {"PyTorch": 2_600.0, "CUDA": 2_200.0, "Triton": 2_200.0, "Compile": 2_400.0, "Liger": 3_000.0}
_SHARE = {"PyTorch": 0.7, "CUDA": 0.86, "Triton": 0.98, "Compile": 0.91, "Liger": 0.85}
"""Of the bandwidth at the largest dimensions."""
_SLOW_UNTIL = {"PyTorch": 16, "CUDA": 24, "Triton": 50, "Compile": 30, "Liger": 80}
"""Dimension at which half of that share is reached."""
_BYTES_PER_ELEMENT = {"LayerNorm": 2.0, "GELU": 2.0, "Swish": 2.0, "MSE": 2.0, "CrossEntropy": 1.0}
_WIDTHS = {"float32": 4, "float16": 2, "bfloat16": 2}


def points(
    operations: Iterable[str] = OPERATIONS,
    batches: Iterable[int] = BATCHES,
    lengths: Iterable[int] = LENGTHS,
    dimensions: Iterable[int] = DIMENSIONS,
    dtype: str = "float32",
) -> Iterator[SweepPoint]:
    """The grid in the order of a sweep."""
    for operation in operations:
        for batch in batches:
            for length in lengths:
                for dimension in dimensions:
                    yield SweepPoint(operation, batch, length, dimension, dtype, "fwd")


def record(point: SweepPoint, implementations: Sequence[str] = IMPLEMENTATIONS) -> SweepRecord:
    """What the formula gives at the point."""
    light = light_of(point)
    drawn = random.Random(repr(point))
    timings = tuple(
        SweepTiming(name, tuple(_time_ns(point, name) * drawn.gauss(1, 0.01) for _ in range(20)), 5, light.min_bytes)
        for name in implementations
    )
    return SweepRecord(point=point, device=DEVICE, timings=timings, light=light, seconds=0.1)


def light_of(point: SweepPoint) -> SpeedOfLight:
    """Pointwise operations have counted arithmetic, the others none."""
    elements = point.batch_size * point.sequence_length * point.tensor_dimension
    size = elements * _WIDTHS[point.dtype]
    pointwise = point.operation in ("GELU", "Swish")
    return SpeedOfLight(
        read_bytes=size,
        written_bytes=int(size * (_BYTES_PER_ELEMENT[point.operation] - 1)),
        bytes_per_second=BANDWIDTH,
        latency_ns=LATENCY_NS,
        flops=elements if pointwise else 0,
        flops_counted="pointwise" if pointwise else "none",
        flops_per_second=50e12 if pointwise else None,
        dtype=point.dtype if pointwise else None,
    )


def _time_ns(point: SweepPoint, name: str) -> float:
    grown = point.tensor_dimension / (point.tensor_dimension + _SLOW_UNTIL[name])
    return _START_NS[name] + light_of(point).min_bytes / (BANDWIDTH * _SHARE[name] * grown) * 1e9


def rows_of(record: SweepRecord) -> Iterator[SweepRow]:
    """One row per timing: the mean, and twice its standard error to both sides."""
    point, light = record.point, record.light
    assert light is not None
    for timing in record.timings:
        samples = timing.samples_ns
        mean = sum(samples) / len(samples)
        spread = (sum((sample - mean) ** 2 for sample in samples) / (len(samples) - 1)) ** 0.5
        error = 2 * spread / len(samples) ** 0.5
        limit = max(light.latency_ns, light.min_bytes / light.bytes_per_second * 1e9)
        yield SweepRow(
            operation=point.operation,
            implementation=timing.implementation,
            batch_size=point.batch_size,
            sequence_length=point.sequence_length,
            tensor_dimension=point.tensor_dimension,
            mode=point.mode,
            dtype=point.dtype,
            time_ms=mean / 1e6,
            interval_low_ms=(mean - error) / 1e6,
            interval_high_ms=(mean + error) / 1e6,
            memory_mb=timing.memory_bytes / 1e6,
            inference_speed=1e9 / mean,
            gpu_efficiency=100 * limit / mean,
            throughput_gbps=light.min_bytes / mean,
        )


def rows(records: Iterable[SweepRecord]) -> list[SweepRow]:
    """All rows of the records."""
    return [row for one in records for row in rows_of(one)]


def skipped(point: SweepPoint, implementation: str, reason: str) -> SkippedRow:
    """One entry of the file of what was not timed."""
    return SkippedRow(
        operation=point.operation,
        implementation=implementation,
        batch_size=point.batch_size,
        sequence_length=point.sequence_length,
        tensor_dimension=point.tensor_dimension,
        mode=point.mode,
        dtype=point.dtype,
        reason=reason,
    )
