"""Computes the speedup of an optimized benchmark over its baseline, compares their outputs, and chooses their clock."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from torchstone.benchmarks import BenchmarkMode
from torchstone.harness.benchmark_process_messages import Outputs
from torchstone.harness.results import Comparison, OutputComparison
from torchstone.harness.side_run import SideRun
from torchstone.harness.timing_stats import block_means
from torchstone.measuring.block_ratio import (
    CPU_PLACEMENT_DOUBT,
    CPU_QUANTILE,
    CUDA_PLACEMENT_DOUBT,
    CUDA_QUANTILE,
    HOST_DOUBT,
    BlockRatio,
    block_ratio,
)
from torchstone.tensor_files import Floats, difference, distance, largest, load_tensors

OTHER_STREAM_SHARE = 0.1
OTHER_STREAM_MS = 0.03
"""A call works on other streams, too, if the wall time exceeds the time of the events by this share and this time."""
HOST_BOUND_SHARE = 0.8
"""A side is host-bound if issuing its calls takes the host more than this share of the device's time."""

TOLERANCES = {
    "float64": 1e-10,
    "float32": 1e-4,
    "float16": 2e-2,
    "bfloat16": 2e-2,
}
"""Dtype -> allowed difference as a share of the largest value, if the benchmark declares no tolerance."""
TF32_TOLERANCE = 1e-2
FLOAT8_TOLERANCE = 0.25
FARTHEST = 1e9
"""Reported for an infinite difference (a NaN on one side only, another shape): JSON has no infinity."""
_COMPLEX = {"complex128": "float64", "complex64": "float32", "complex32": "float16"}


def choose_clock(sides: Sequence[SideRun], by_host: bool = False) -> None:
    """Choose CUDA events if they cover all the work of every side, else the host's clock for all sides.

    Triton's timer always uses events, torch's timer the host's clock. `by_host`: use the host's clock, because a side
    that ran before was timed by it.
    """
    present = [side for side in sides if not side.has_failed]
    on_other_streams = [side for side in present if _works_on_other_streams(side)]
    for side in present:
        if side.settings.mode is not BenchmarkMode.CUSTOM:
            side.uses_events = side.settings.mode is BenchmarkMode.TRITON
            continue
        side.uses_events = not by_host and not on_other_streams and all(each.unseen_ms is not None for each in present)
        if on_other_streams:
            names = " and ".join(each.side for each in on_other_streams)
            side.notes.append(
                f"timed by the wall clock: the {names} side works on streams that CUDA events do not cover"
            )


def sides_on_another_clock(sides: Sequence[SideRun]) -> list[SideRun]:
    """Sides that were timed by events while another was timed by the host's clock, so that they cannot be compared."""
    present = [side for side in sides if not side.has_failed]
    if all(side.uses_events for side in present):
        return []
    return [side for side in present if side.uses_events and side.settings.mode is BenchmarkMode.CUSTOM]


def _works_on_other_streams(side: SideRun) -> bool:
    if side.unseen_ms is None:
        return False
    return side.unseen_ms > max(OTHER_STREAM_MS, OTHER_STREAM_SHARE * statistics.median(side.warm_ms[1:]))


def is_host_bound(side: SideRun) -> bool:
    """Whether the device waits for the host. Then the times are those of the host and vary with its speed."""
    device_ms = sum(sum(block.times_ms) for block in side.blocks)
    return side.uses_events and sum(block.host_ms for block in side.blocks) > HOST_BOUND_SHARE * device_ms


def compare_sides(
    name: str,
    baseline: SideRun,
    optimized: SideRun,
    outputs: OutputComparison | None,
    threshold_pct: float,
    taken: Literal["interleaved", "in sequence"],
    notes: Sequence[str] = (),
) -> Comparison:
    """The comparison of two sides.

    It has a speedup only if both succeeded, and a regression only if the whole interval is beyond the threshold.
    """
    found = None
    if not baseline.has_failed and not optimized.has_failed:
        found = _ratio(baseline, optimized, taken == "interleaved")
    return Comparison(
        name=name,
        baseline=baseline.result(),
        optimized=optimized.result(),
        speedup=None if found is None else found.ratio,
        speedup_low=None if found is None else found.low,
        speedup_high=None if found is None else found.high,
        regression=found is not None and is_regression(found, threshold_pct),
        regression_pct=None if found is None or found.ratio >= 1 else (1 / found.ratio - 1) * 100,
        regression_threshold_pct=threshold_pct,
        outputs=outputs,
        taken=taken,
        notes=tuple(notes),
    )


def is_regression(found: BlockRatio, threshold_pct: float) -> bool:
    """Whether even the upper end of the interval is slower than allowed. False without an interval."""
    return found.high is not None and found.high < 1 / (1 + threshold_pct / 100)


def _ratio(baseline: SideRun, optimized: SideRun, is_paired: bool) -> BlockRatio | None:
    ours, theirs = (block_means(side.blocks) for side in (baseline, optimized))
    if not ours or not theirs:
        return None
    if baseline.device == "cpu":
        return block_ratio(ours, theirs, CPU_QUANTILE, is_paired, CPU_PLACEMENT_DOUBT)
    by_host = any(not side.uses_events or is_host_bound(side) for side in (baseline, optimized))
    return block_ratio(ours, theirs, CUDA_QUANTILE, is_paired, HOST_DOUBT if by_host else CUDA_PLACEMENT_DOUBT)


def compare_outputs(
    baseline: Outputs | None, optimized: Outputs | None, baseline_file: Path, optimized_file: Path
) -> OutputComparison | None:
    """Compare the outputs; the result describes the worst tensor. None: not both sides offer an output."""
    if baseline is None or optimized is None or not baseline.tensors or not optimized.tensors:
        return None
    message = _structure_difference(baseline, optimized)
    if message:
        return OutputComparison(False, 0, "", FARTHEST, 0.0, message)
    declared = _declared(baseline, optimized)
    tf32 = baseline.allows_tf32 or optimized.allows_tf32
    theirs, ours = (list(load_tensors(path).values()) for path in (baseline_file, optimized_file))
    worst: tuple[float, OutputComparison] | None = None
    for place, (first, second) in enumerate(zip(baseline.tensors, optimized.tensors, strict=True)):
        allowed = max(tolerance(first.dtype, tf32), tolerance(second.dtype, tf32))
        found = _compare_tensor(first.name, ours[place], theirs[place], allowed, declared, len(theirs))
        if worst is None or found[0] > worst[0]:
            worst = found
    assert worst is not None, "there is at least one tensor"
    return worst[1]


def _structure_difference(baseline: Outputs, optimized: Outputs) -> str:
    if len(baseline.tensors) != len(optimized.tensors):
        return f"the baseline has {len(baseline.tensors)} output tensors, the optimized side {len(optimized.tensors)}"
    for first, second in zip(baseline.tensors, optimized.tensors, strict=True):
        if first.shape != second.shape:
            return f"{first.name}: shape {first.shape} of the baseline, {second.shape} of the optimized side"
    return ""


def _declared(*sides: Outputs) -> tuple[float, float] | None:
    """The larger of the tolerances that the sides declare; None if neither declares one."""
    found = [side.tolerance for side in sides if side.tolerance is not None]
    return (max(rtol for rtol, _ in found), max(atol for _, atol in found)) if found else None


def tolerance(dtype: str, allows_tf32: bool) -> float:
    """Allowed difference of values of this dtype, as a share of the largest; zero for integers and booleans."""
    real = _COMPLEX.get(dtype, dtype)
    if real == "float32" and allows_tf32:
        return TF32_TOLERANCE
    return TOLERANCES.get(real, FLOAT8_TOLERANCE if real.startswith("float") else 0.0)


def _compare_tensor(
    name: str, ours: Floats, theirs: Floats, allowed: float, declared: tuple[float, float] | None, count: int
) -> tuple[float, OutputComparison]:
    """The difference over the allowed one, for ranking, and the comparison of the tensor."""
    apart, _ = distance(ours, theirs)
    if declared is not None:
        rtol, atol = declared
        scale = largest(theirs)
        allowed = rtol + atol / scale
        with np.errstate(invalid="ignore", over="ignore"):
            limits = atol + rtol * np.where(np.isfinite(theirs), np.abs(theirs), 0.0)
        agrees = bool(np.all(difference(ours, theirs) <= limits)) if theirs.size else True
    else:
        agrees = apart <= allowed
    excess = apart / allowed if allowed > 0 else (math.inf if apart > 0 else 0.0)
    if not agrees:
        excess = max(excess, 1.0) + 1.0  # ranks above every tensor that agrees
    message = "" if agrees else _message(name, apart, allowed)
    return excess, OutputComparison(agrees, count, name, min(apart, FARTHEST), allowed, message)


def _message(name: str, apart: float, allowed: float) -> str:
    if math.isinf(apart):
        return f"{name} is NaN or infinite on one side only"
    return f"{name} differs by {apart:.3g} of its largest value; {allowed:.3g} is allowed"
