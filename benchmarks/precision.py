"""How precise a reported speedup is, against triton.testing.do_bench at equal wall time, in one process.

    python benchmarks/precision.py [--repeats 20] [--kernels relu_1Ki,mm_1024] [--injected-repeats N] [--json FILE]

Every kernel is torch's own, judged against itself: the true ratio is 1. Each repeat measures once with Torchstone
(everything that its measuring stage does: drawing, capturing, verifying, timing) and once with do_bench, candidate then
reference, which is given as much wall time. Spread is the standard deviation of the logarithm of the reported ratio.
Then kernels with some extra work are judged, and how often the interval holds the ratio that all repeats together
show.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

from torchstone.judge_process.job_retries import judge
from torchstone.judge_process.measuring_lane import MeasuringLane
from torchstone.judge_process.resources import JudgeResources
from torchstone.measuring import Speedup, Timing, timing
from torchstone.measuring.ceilings import DeviceCeilings
from torchstone.measuring.device_state import DeviceProbe
from torchstone.measuring.kept_ceilings import KeptCeilings
from torchstone.schema import (
    Agrees,
    Case,
    Implementation,
    ImportPath,
    Job,
    Normal,
    Scalar,
    Sequence,
    SourceFile,
    SourceFiles,
    Tensor,
)
from torchstone.supervisor.worker_pool import WorkerOptions, WorkerPool

WANTED_FALSE = 0.02


def kernels() -> dict[str, Case]:
    """From one microsecond to one millisecond on an H200."""

    def tensor(*shape: int, dtype: str = "float32") -> Tensor:
        return Tensor(shape, dtype, Normal())

    def square(side: int) -> tuple[Any, ...]:
        return tensor(side, side, dtype="bfloat16"), tensor(side, side, dtype="bfloat16")

    def layer_norm(rows: int, columns: int) -> tuple[Any, ...]:
        return tensor(rows, columns), Sequence((Scalar(columns),)), tensor(columns), tensor(columns), Scalar(1e-5)

    table: dict[str, tuple[str, tuple[Any, ...]]] = {
        "relu_1Ki": ("aten.relu.default", (tensor(1 << 10),)),
        "relu_64Ki": ("aten.relu.default", (tensor(1 << 16),)),
        "relu_1Mi": ("aten.relu.default", (tensor(1 << 20),)),
        "layer_norm_128x1024": ("aten.native_layer_norm.default", layer_norm(128, 1024)),
        "mm_256": ("aten.mm.default", square(256)),
        "softmax_1024x1024": ("aten._softmax.default", (tensor(1024, 1024), Scalar(-1), Scalar(False))),
        "mm_1024": ("aten.mm.default", square(1024)),
        "add_4Mi": ("aten.add.Tensor", (tensor(1 << 22), tensor(1 << 22))),
        "sum_4096x4096": ("aten.sum.dim_IntList", (tensor(4096, 4096), Sequence((Scalar(1),)))),
        "relu_16Mi": ("aten.relu.default", (tensor(1 << 24),)),
        "mm_4096": ("aten.mm.default", square(4096)),
        "mm_7168": ("aten.mm.default", square(7168)),
    }
    return {name: Case("precision", operator, args, timed=True) for name, (operator, args) in table.items()}


MORE_WORK = """import torch

def kernel(x):
    y = torch.relu(x)
    x[: x.numel() // {part}].neg()
    return y
"""
INJECTED = {"relu_1Mi": MORE_WORK, "relu_16Mi": MORE_WORK}
PARTS = (2, 8, 32)


class Found(NamedTuple):
    timing: Timing
    seconds: float


@contextlib.contextmanager
def judge_resources(device_type: str) -> Iterator[JudgeResources]:
    torch.set_num_threads(1)
    pool = WorkerPool(WorkerOptions(device_type=device_type))
    pool.start()
    device = torch.device("cuda", 0) if device_type == "cuda" else torch.device("cpu")
    ceilings = DeviceCeilings(device, 1, (), KeptCeilings(None))
    resources = JudgeResources(pool, MeasuringLane(device_type), device, 1, DeviceProbe(device_type), ceilings)
    try:
        yield resources
    finally:
        resources.close()


def measured(resources: JudgeResources, job: Job) -> Found:
    record = judge(job, resources, resources.device.type, "benchmark", "best")
    assert isinstance(record.verdict, Agrees), record.verdict
    assert record.measurement is not None
    return Found(timing(record.measurement), record.stage_seconds["measure"])


def native(case: Case) -> Implementation:
    return Implementation("aten", case.operator, ImportPath("torch", f"ops.{case.operator}"), "aten")


def with_do_bench(case: Case, seconds: float) -> tuple[float, float]:
    """Ratio of means and of medians of two runs that take this long together."""
    from triton.testing import do_bench

    from torchstone.judging import draw_call

    call = draw_call(case, 1, torch.device("cuda", 0))
    operator = eval(f"torch.ops.{case.operator}")

    def run() -> Any:
        return operator(*call.args, **call.kwargs)

    scale = (seconds / 2) / _usual_seconds(lambda: do_bench(run, return_mode="all"), case.key)
    one, other = (do_bench(run, warmup=25 * scale, rep=100 * scale, return_mode="all") for _ in range(2))
    return statistics.fmean(one) / statistics.fmean(other), statistics.median(one) / statistics.median(other)


_seconds: dict[str, float] = {}


def _usual_seconds(action: Callable[[], Any], key: str = "") -> float:
    if key not in _seconds:
        action()
        began = time.perf_counter()
        action()
        _seconds[key] = time.perf_counter() - began
    return _seconds[key]


def spread(ratios: list[float]) -> float:
    return statistics.stdev(math.log(ratio) for ratio in ratios) if len(ratios) > 1 else math.nan


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--kernels", default="")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--effort", default="normal")
    parser.add_argument("--injected-only", action="store_true")
    parser.add_argument("--injected-repeats", type=int)
    options = parser.parse_args()
    chosen = {name: case for name, case in kernels().items() if not options.kernels or name in options.kernels}
    rows: list[dict[str, Any]] = []
    with judge_resources("cuda") as resources:
        print(
            f"{'kernel':22s} {'device us':>9s} {'wall ms':>8s} {'ours':>7s} {'do_bench mean':>14s} {'median':>8s}",
            end="",
        )
        print(f" {'better than mean':>17s} {'median':>7s} {'bias':>7s} {'holds 1':>8s} verdicts")
        for name, case in () if options.injected_only else chosen.items():
            rows.append(compare(resources, name, case, options.repeats, options.effort))
            write(options.json, rows)
        judged = [outcome for row in rows for outcome in row["outcomes"]]
        false = sum(outcome in ("faster", "slower") for outcome in judged) / max(1, len(judged))
        held = statistics.fmean(row["holds"] for row in rows) if rows else math.nan
        print(f"A against A: {len(judged)} runs, the 95 % interval holds 1 in {held:.1%}, {false:.1%} called faster or")
        print(f"slower (wanted: at most {WANTED_FALSE:.0%})")
        for name in INJECTED.keys() & chosen.keys():
            rows += injected(resources, name, chosen[name], options.injected_repeats or options.repeats, options.effort)
            write(options.json, rows)


def write(path: Path | None, rows: list[dict[str, Any]]) -> None:
    """After each kernel: the rest may be cut."""
    if path is not None:
        path.write_text(json.dumps(rows, indent=1))


def compare(resources: JudgeResources, name: str, case: Case, repeats: int, effort: Any) -> dict[str, Any]:
    job = Job(case, native(case), effort=effort)
    measured(resources, job)  # what is done once per process, for both
    usual = measured(resources, job).seconds
    with_do_bench(case, usual)
    ours: list[Found] = []
    means: list[float] = []
    medians: list[float] = []
    for _ in range(repeats):
        ours.append(measured(resources, job))
        mean, median = with_do_bench(case, ours[-1].seconds)
        means.append(mean)
        medians.append(median)
    speedups = [found.timing.speedup for found in ours]
    known = [speedup for speedup in speedups if speedup is not None]
    ratios = [speedup.ratio for speedup in known]
    row: dict[str, Any] = {
        "kernel": name,
        "device_ns": statistics.median(found.timing.reference_ns for found in ours),
        "wall_seconds": statistics.median(found.seconds for found in ours),
        "spread": spread(ratios),
        "mean_spread": spread(means),
        "median_spread": spread(medians),
        "bias": statistics.fmean(map(math.log, ratios)) if ratios else math.nan,
        "holds": statistics.fmean(speedup.low <= 1 <= speedup.high for speedup in known) if known else 0.0,
        "outcomes": [speedup.outcome if speedup else "unresolved" for speedup in speedups],
        "claimed": sum(speedup.judged_low is not None for speedup in known),
        "judged_half_width": statistics.median(
            [math.log(s.judged_high / s.judged_low) / 2 for s in known if s.judged_low and s.judged_high] or [math.nan]
        ),
    }
    words = {word: row["outcomes"].count(word) for word in sorted(set(row["outcomes"]))}
    print(
        f"{name:22s} {row['device_ns'] / 1e3:9.2f} {row['wall_seconds'] * 1e3:8.0f} {row['spread']:7.2%} "
        f"{row['mean_spread']:14.2%} {row['median_spread']:8.2%} {row['mean_spread'] / row['spread']:16.1f}x "
        f"{row['median_spread'] / row['spread']:6.1f}x {row['bias']:7.2%} {row['holds']:8.0%} {words} "
        f"claims {row['claimed']}/{len(ours)} judge ±{row['judged_half_width']:.1%}",
        flush=True,
    )
    return row


def injected(resources: JudgeResources, name: str, case: Case, repeats: int, effort: Any) -> list[dict[str, Any]]:
    rows = []
    for part in PARTS:
        text = INJECTED[name].format(part=part)
        slower = Implementation(
            "test", case.operator, SourceFiles((SourceFile("kernel.py", text),), "kernel"), "python"
        )
        found = [_in_a_fresh_worker(resources, Job(case, slower, effort=effort)) for _ in range(repeats)]
        known = [speedup for speedup in found if speedup is not None]
        if not known:
            print(f"{name} with 1/{part} more work: no speedup was resolved in {repeats} runs", flush=True)
            continue
        truth = math.exp(statistics.fmean(math.log(speedup.ratio) for speedup in known))
        holds = statistics.fmean(speedup.low <= truth <= speedup.high for speedup in known)
        claimed = [speedup for speedup in known if speedup.judged_low is not None]
        print(
            f"{name} with 1/{part} more work: ratio {truth:.4f}, spread {spread([s.ratio for s in known]):.2%}, "
            f"interval holds it in {holds:.0%} of {len(known)}, claims believed in {len(claimed)}",
            flush=True,
        )
        told = [(s.ratio, s.low, s.high, s.judged_low, s.judged_high) for s in known]
        rows.append({"kernel": name, "part": part, "ratio": truth, "holds_ratio": holds, "runs": told})
    return rows


def _in_a_fresh_worker(resources: JudgeResources, job: Job) -> Speedup | None:
    """As every run begins: of a kernel of several parts, the time differs by 15 % with what its process did before."""
    resources.dismiss_candidate()
    return measured(resources, job).timing.speedup


if __name__ == "__main__":
    main()
