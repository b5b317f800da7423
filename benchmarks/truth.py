"""Are the times true? Device times of small kernels against Nsight Compute's, and the share of the limit against its.

    python benchmarks/truth.py [--cache-control none|all] [--json FILE]

Each kernel is torch's own. Torchstone's time per call comes from a normal measurement (cold caches). ncu profiles the
same kernels in a process of its own, one at a time, clocks left alone, with or without flushing all caches before
each; CUPTI (torch's profiler) tells when kernels of a row of calls began and ended; do_bench runs beside.
Where the bound is memory, the share of the limit is held against what ncu says of the memory's throughput.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from precision import courtroom, kernels, measured, native
from torchstone.judging import draw_call
from torchstone.schema import Case, Job, Normal, Scalar, Tensor

METRICS = ("gpu__time_duration.sum", "dram__throughput.avg.pct_of_peak_sustained_elapsed")
SMALL = ("relu_1Ki", "relu_64Ki", "relu_1Mi", "layer_norm_128x1024", "mm_256", "softmax_1024x1024", "mm_1024")
CALLS = 20


def streaming() -> dict[str, Case]:
    """Kernels that only move memory, large enough to reach the limit."""
    large = Tensor((8192, 8192), "float32", Normal())
    weight = Tensor((8192,), "float32", Normal())
    table: dict[str, tuple[str, tuple[Any, ...]]] = {
        "copy": ("aten.clone.default", (large,)),
        "add": ("aten.add.Tensor", (large, large)),
        "layer_norm": kernels_of_layer_norm(large, weight),
        "softmax": ("aten._softmax.default", (large, Scalar(-1), Scalar(False))),
    }
    return {name: Case("truth", operator, args, timed=True) for name, (operator, args) in table.items()}


def kernels_of_layer_norm(large: Tensor, weight: Tensor) -> tuple[str, tuple[Any, ...]]:
    from torchstone.schema import Sequence

    return "aten.native_layer_norm.default", (large, Sequence((Scalar(8192),)), weight, weight, Scalar(1e-5))


def all_cases() -> dict[str, Case]:
    small = kernels()
    return {name: small[name] for name in SMALL} | streaming()


def subject(name: str) -> None:
    """What ncu watches: calls of one kernel on values of their own."""
    make_calls = _calls_of(all_cases()[name])
    torch.cuda.profiler.start()
    make_calls()
    torch.cuda.profiler.stop()


def _calls_of(case: Case) -> Callable[[], None]:
    """What makes a row of calls in turn on a few values, after each was called once."""
    drawn = [draw_call(case, seed, torch.device("cuda", 0)) for seed in range(3)]
    operator = _operator(case)

    def call(times: int) -> None:
        for index in range(times):
            operator(*drawn[index % len(drawn)].args, **drawn[index % len(drawn)].kwargs)
        torch.cuda.synchronize()

    call(len(drawn))
    return lambda: call(CALLS)


def _operator(case: Case) -> Any:
    found: Any = torch.ops
    for part in case.operator.split("."):
        found = getattr(found, part)
    return found


def by_ncu(name: str, cache_control: str) -> tuple[float, float]:
    """Nanoseconds per call over all its kernels, and the throughput of the memory in percent of its peak."""
    ncu = shutil.which("ncu") or "/usr/local/cuda/bin/ncu"
    command = [
        *(ncu, "--clock-control", "none", "--cache-control", cache_control, "--profile-from-start", "off"),
        *("--metrics", ",".join(METRICS), "--csv", "--page", "raw", "--print-units", "base"),
        *(sys.executable, __file__, "--subject", name),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
    lines = [line for line in done.stdout.splitlines() if line.startswith('"')]
    rows = list(csv.DictReader(io.StringIO("\n".join(lines))))[1:]  # the second line holds units
    if not rows:
        raise RuntimeError(f"ncu said nothing about {name}: {done.stdout[-500:]} {done.stderr[-500:]}")
    times = [float(row[METRICS[0]].replace(",", "")) for row in rows]
    kernels_per_call = max(1, len(rows) // CALLS)
    sums = [sum(times[start : start + kernels_per_call]) for start in range(0, len(times), kernels_per_call)]
    shares = [float(row[METRICS[1]]) for row in rows]
    weighted = sum(share * time for share, time in zip(shares, times, strict=True)) / sum(times)
    return statistics.median(sums), weighted


def by_cupti(case: Case) -> float:
    """Nanoseconds per call between the beginning and the end of its kernels, in a row of calls on other values."""
    from torch.profiler import ProfilerActivity, profile

    make_calls = _calls_of(case)
    with profile(activities=[ProfilerActivity.CUDA]) as watched:
        make_calls()
    times = [event.time_range.elapsed_us() * 1e3 for event in watched.events() if event.device_type.name == "CUDA"]
    each = max(1, len(times) // CALLS)
    return statistics.median(sum(times[start : start + each]) for start in range(0, len(times), each))


def by_do_bench(case: Case) -> float:
    from triton.testing import do_bench

    call = draw_call(case, 1, torch.device("cuda", 0))
    operator = _operator(case)
    return float(do_bench(lambda: operator(*call.args, **call.kwargs), return_mode="median")) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--subject")
    parser.add_argument("--cache-control", default="all", choices=("none", "all"))
    parser.add_argument("--kernels", default="")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.subject:
        subject(options.subject)
        return
    rows: list[dict[str, Any]] = []
    print(f"ncu --cache-control {options.cache_control}")
    print(f"{'kernel':22s} {'ncu us':>8s} {'CUPTI us':>8s} {'ours us':>8s} {'of ncu':>7s} {'of CUPTI':>8s}", end="")
    print(f" {'do_bench':>8s} {'of ncu':>7s}", end="")
    print(f" {'of limit':>9s} {'ncu memory':>10s}")
    with courtroom("cuda") as room:
        for name, case in all_cases().items():
            if options.kernels and name not in options.kernels.split(","):
                continue
            measured(room, Job(case, native(case)))
            times = measured(room, Job(case, native(case))).timing
            other_ns = by_do_bench(case)
            torch.cuda.empty_cache()
            cupti_ns = by_cupti(case)
            truth_ns, share = by_ncu(name, options.cache_control)
            reached = times.attainment
            row = {
                "kernel": name,
                "ncu_ns": truth_ns,
                "cupti_ns": cupti_ns,
                "torchstone_ns": times.reference_ns,
                "call_ns": times.reference_call_ns,
                "do_bench_ns": other_ns,
                "of_limit_percent": reached.reference_percent if reached else None,
                "bound": reached.bound if reached else None,
                "ncu_memory_percent": share,
            }
            rows.append(row)
            limit = f"{row['of_limit_percent']:.1f} %" if reached else "-"
            print(
                f"{name:22s} {truth_ns / 1e3:8.2f} {cupti_ns / 1e3:8.2f} {times.reference_ns / 1e3:8.2f} "
                f"{times.reference_ns / truth_ns - 1:7.1%} {times.reference_ns / cupti_ns - 1:8.1%} "
                f"{other_ns / 1e3:8.2f} {other_ns / truth_ns - 1:7.1%} "
                f"{limit:>9s} {share:8.1f} % {row['bound']}",
                flush=True,
            )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
