"""Are the times true? Device times of small kernels against Nsight Compute's, and the share of the limit against its.

    python benchmarks/truth.py [--kernels relu_1Ki,copy] [--json FILE]

Each kernel is torch's own. Torchstone's time per call comes from a normal measurement with cold caches. It is compared
with:

- ncu, one kernel at a time in its own process, clocks not locked, with and without flushing caches;
- CUPTI (torch's profiler), which reports when the kernels of a row of calls began and ended, once on values that rotate
  through more than the cache, as Torchstone's do, and once on the same few;
- do_bench.

The last line shows how much more ncu, without flushing, reports than CUPTI on the same few values. Where memory is the
limit, it also shows the share of the measured limit, and the least bytes as a share of the nominal peak beside ncu's
memory throughput.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from precision import judge_resources, kernels, measured, native
from torchstone.judging import draw_call
from torchstone.schema import Case, Job, Normal, Scalar, Tensor

METRICS = ("gpu__time_duration.sum", "dram__throughput.avg.pct_of_peak_sustained_elapsed")
SMALL = ("relu_1Ki", "relu_64Ki", "relu_1Mi", "layer_norm_128x1024", "mm_256", "softmax_1024x1024", "mm_1024")
CALLS = 20
FEW_SETS = 3
MOST_SETS = 512
COLD_BYTES = 256 << 20
"""More than the cache of any device of today."""


def streaming() -> dict[str, Case]:
    """Kernels that only move memory, large enough to reach the limit."""
    large = Tensor((8192, 8192), "float32", Normal())
    weight = Tensor((8192,), "float32", Normal())
    table: dict[str, tuple[str, tuple[Any, ...]]] = {
        "copy": ("aten.neg.default", (large,)),  # clone is no kernel but a copy of the driver's, which ncu passes over
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


def subject(names: list[str]) -> None:
    """What ncu watches: calls of each kernel on values of their own."""
    for name in names:
        make_calls = _calls_of(all_cases()[name])
        torch.cuda.profiler.start()
        make_calls()
        torch.cuda.profiler.stop()


def _calls_of(case: Case, cold: bool = False) -> Callable[[], None]:
    """What makes a row of calls in turn on a few values, or on more than caches hold, after each was called once."""
    one = draw_call(case, 0, torch.device("cuda", 0))
    footprint_bytes = 2 * sum(tensor.storage.nbytes for tensor in one.tensors)
    sets = min(MOST_SETS, math.ceil(COLD_BYTES / footprint_bytes)) if cold else FEW_SETS
    drawn = [one, *(draw_call(case, seed, torch.device("cuda", 0)) for seed in range(1, sets))]
    operator, results = _operator(case), [None] * len(drawn)

    def call(times: int) -> None:
        for index in range(times):
            one = index % len(drawn)
            results[one] = operator(*drawn[one].args, **drawn[one].kwargs)  # kept: else results share their memory
        torch.cuda.synchronize()

    call(2 * len(drawn))
    return lambda: call(CALLS)


def _operator(case: Case) -> Any:
    found: Any = torch.ops
    for part in case.operator.split("."):
        found = getattr(found, part)
    return found


def by_ncu(kernels_per_call: dict[str, int], cache_control: str) -> dict[str, tuple[float, float]]:
    """Nanoseconds per call over all its kernels, and the throughput of the memory in percent of its peak."""
    ncu = shutil.which("ncu") or "/usr/local/cuda/bin/ncu"
    command = [
        *(ncu, "--clock-control", "none", "--cache-control", cache_control, "--profile-from-start", "off"),
        *("--metrics", ",".join(METRICS), "--csv", "--page", "raw", "--print-units", "base"),
        *(sys.executable, __file__, "--subject", ",".join(kernels_per_call)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, stdin=subprocess.DEVNULL)
    lines = [line for line in done.stdout.splitlines() if line.startswith('"')]
    rows = list(csv.DictReader(io.StringIO("\n".join(lines))))[1:]  # the second line holds units
    wanted = CALLS * sum(kernels_per_call.values())
    if len(rows) != wanted:
        raise RuntimeError(f"ncu told of {len(rows)} kernels, not {wanted}: {done.stdout[-500:]} {done.stderr[-500:]}")
    found = {}
    for name, each in kernels_per_call.items():
        found[name] = _of_calls(rows[: CALLS * each], each)
        rows = rows[CALLS * each :]
    return found


def _of_calls(rows: list[dict[str, str]], each: int) -> tuple[float, float]:
    times = [float(row[METRICS[0]].replace(",", "")) for row in rows]
    shares = [float(row[METRICS[1]]) for row in rows]
    sums = [sum(times[start : start + each]) for start in range(0, len(times), each)]
    return statistics.median(sums), sum(s * t for s, t in zip(shares, times, strict=True)) / sum(times)


def by_cupti(case: Case, cold: bool) -> tuple[float, int]:
    """Nanoseconds per call between the beginning and the end of its kernels in a row of calls, and their number."""
    from torch.profiler import ProfilerActivity, profile

    make_calls = _calls_of(case, cold)
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as watched:
        make_calls()
    times = [event.time_range.elapsed_us() * 1e3 for event in watched.events() if event.device_type.name == "CUDA"]
    each = max(1, len(times) // CALLS)
    return statistics.median(sum(times[start : start + each]) for start in range(0, len(times), each)), each


def by_do_bench(case: Case) -> float:
    from triton.testing import do_bench

    call = draw_call(case, 1, torch.device("cuda", 0))
    operator = _operator(case)
    return float(do_bench(lambda: operator(*call.args, **call.kwargs), return_mode="median")) * 1e6


def nominal_bytes_per_second() -> float:
    """What ncu's percentages are of: two transfers per clock over the whole bus."""
    import pynvml

    pynvml.nvmlInit()
    device = pynvml.nvmlDeviceGetHandleByIndex(0)
    clock_hz = pynvml.nvmlDeviceGetMaxClockInfo(device, pynvml.NVML_CLOCK_MEM) * 1e6
    return 2.0 * clock_hz * float(pynvml.nvmlDeviceGetMemoryBusWidth(device)) / 8


def _measured_here(resources: Any, case: Case) -> dict[str, Any]:
    measured(resources, Job(case, native(case)))  # the first finds out what later ones know
    times = measured(resources, Job(case, native(case))).timing
    reached = times.attainment
    other_ns = by_do_bench(case)
    cupti_ns, kernels_per_call = by_cupti(case, cold=True)
    return {
        "case": case.operator,
        "kernels": kernels_per_call,
        "torchstone_ns": times.reference_ns,
        "call_ns": times.reference_call_ns,
        "do_bench_ns": other_ns,
        "cupti_ns": cupti_ns,
        "cupti_warm_ns": by_cupti(case, cold=False)[0],
        "of_limit_percent": reached.reference_percent if reached else None,
        "of_peak_percent": 100 * reached.reference_bytes_per_second / nominal_bytes_per_second() if reached else None,
        "bound": reached.bound if reached else None,
    }


def _print(rows: dict[str, dict[str, Any]]) -> None:
    own_ns = statistics.median(row["ncu_none_ns"] - row["cupti_warm_ns"] for name, row in rows.items())
    columns = (
        *("ours us", "CUPTI us", "ours is", "ncu us", "ours is", "less own", "do_bench", "of limit", "of peak"),
        "ncu memory",
    )
    print(f"{'kernel':22s} " + " ".join(f"{column:>10s}" for column in columns))
    for name, row in rows.items():
        ours, cupti, ncu = row["torchstone_ns"], row["cupti_ns"], row["ncu_all_ns"]
        limit, peak = (
            "-" if row[share] is None else f"{row[share]:.1f} %" for share in ("of_limit_percent", "of_peak_percent")
        )
        print(
            f"{name:22s} {ours / 1e3:10.2f} {cupti / 1e3:10.2f} {ours / cupti - 1:10.1%} {ncu / 1e3:10.2f} "
            f"{ours / ncu - 1:10.1%} {ours / (ncu - own_ns) - 1:10.1%} {row['do_bench_ns'] / 1e3:10.2f} "
            f"{limit:>10s} {peak:>10s} {row['ncu_memory_percent']:8.1f} % {row['bound']}",
            flush=True,
        )
    own = [row["ncu_none_ns"] - row["cupti_warm_ns"] for row in rows.values()]
    print(f"ncu says {own_ns:.0f} ns more than CUPTI on the same calls ({min(own):.0f} to {max(own):.0f})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--subject")
    parser.add_argument("--kernels", default="")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.subject:
        subject(options.subject.split(","))
        return
    chosen = {
        name: case for name, case in all_cases().items() if not options.kernels or name in options.kernels.split(",")
    }
    rows: dict[str, dict[str, Any]] = {}
    with judge_resources("cuda") as resources:
        for name, case in chosen.items():
            rows[name] = _measured_here(resources, case)
            torch.cuda.empty_cache()
    _write(options.json, rows)
    for cache_control in ("all", "none"):
        told = by_ncu({name: row["kernels"] for name, row in rows.items()}, cache_control)
        for name, (time_ns, memory_percent) in told.items():
            rows[name][f"ncu_{cache_control}_ns"] = time_ns
            rows[name].setdefault("ncu_memory_percent", memory_percent)
        _write(options.json, rows)
    _print(rows)


def _write(path: Path | None, rows: dict[str, dict[str, Any]]) -> None:
    """After each step: the rest may be cut."""
    if path is not None:
        path.write_text(json.dumps(list(rows.values()), indent=1))


if __name__ == "__main__":
    main()
