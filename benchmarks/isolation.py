"""What isolation costs: a fresh sandboxed worker against a cold Python, and the harness's share of a trivial job.

    python benchmarks/isolation.py [--device cpu|cuda] [--repeats 10] [--json]

Everything is measured in one run on one machine, and reported as ratios. A cold Python is what most evaluators
start for each kernel: an interpreter that imports torch and, on a GPU, opens the device.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from torchstone.executors import ExecutorOptions
from torchstone.executors.local import LocalExecutor
from torchstone.schema import Agrees, Case, Implementation, Job, Normal, SourceFile, SourceFiles, Tensor
from torchstone.supervisor.worker_pool import WorkerOptions, WorkerPool

COLD = {"cpu": "import torch", "cuda": "import torch; torch.zeros(1, device='cuda'); torch.cuda.synchronize()"}
WANTED = {"cpu": {"fresh": 10, "spare": 100}, "cuda": {"fresh": 20, "spare": 100}}
WANTED_OVERHEAD_SECONDS = 0.05


def seconds(action: Callable[[], object], repeats: int, between: Callable[[], object] = lambda: None) -> list[float]:
    """Wall time of each repeat; what happens between them is not counted."""
    found = []
    for _ in range(repeats):
        between()
        began = time.perf_counter()
        action()
        found.append(time.perf_counter() - began)
    return found


def cold_python(device: str) -> None:
    subprocess.run([sys.executable, "-c", COLD[device]], check=True)


def worker_times(device: str, repeats: int) -> tuple[list[float], list[float], list[str]]:
    """Seconds to a worker that is ready for a candidate: forked on request, and taken from the spares."""
    pool = WorkerPool(WorkerOptions(device_type=device, spares=1))
    # The zygote's own start is paid once per run. This worker stays: in a run the judge keeps the device open too.
    standing = pool.take()
    layers = [layer.name for layer in standing.layers if layer.active]
    taken = [pool.take()]
    try:
        fresh = seconds(lambda: taken.append(pool.take()), repeats, lambda: taken.pop().kill())

        def order_spare() -> None:
            taken.pop().kill()
            pool.refill()
            pool.settle()

        spare = seconds(lambda: taken.append(pool.take()), repeats, order_spare)
        return fresh, spare, layers
    finally:
        for worker in (*taken, standing):
            worker.kill()
        pool.close()


def job_times(device: str, repeats: int) -> tuple[float, float]:
    """Seconds per trivial job from start to record: all of one candidate, and each of another one."""
    cases = [
        Case("overhead", "aten.relu.default", (Tensor((size,), "float32", Normal()),)) for size in range(1, repeats + 2)
    ]
    same = Implementation("overhead", "aten.relu.default", source("def kernel(x): return x.clamp(min=0)"))
    others = [
        Implementation("overhead", "aten.relu.default", source(f"# {n}\ndef kernel(x): return x.clamp(min=0)"))
        for n in range(repeats + 1)
    ]
    return (
        _per_job([Job(case, same) for case in cases], device),
        _per_job([Job(cases[0], other) for other in others], device),
    )


def source(text: str) -> SourceFiles:
    return SourceFiles((SourceFile("kernel.py", text),), "kernel")


def _per_job(jobs: list[Job], device: str) -> float:
    """Between the first record and the last: the judge's own start is paid once per run."""
    arrivals = []
    for record in LocalExecutor(ExecutorOptions(device=device)).run(jobs):
        assert isinstance(record.verdict, Agrees), record.verdict
        arrivals.append(time.perf_counter())
    return (arrivals[-1] - arrivals[0]) / (len(arrivals) - 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    cold_python(options.device)  # fills the file cache
    cold = statistics.median(seconds(lambda: cold_python(options.device), max(3, options.repeats // 3)))
    fresh_all, spare_all, layers = worker_times(options.device, options.repeats)
    fresh, spare = statistics.median(fresh_all), statistics.median(spare_all)
    same, other = job_times(options.device, 10 * options.repeats)
    result = {
        "device": options.device,
        "layers": layers,
        "cold_python_seconds": cold,
        "fresh_worker_seconds": fresh,
        "spare_worker_seconds": spare,
        "cold_over_fresh": cold / fresh,
        "cold_over_spare": cold / spare,
        "trivial_job_seconds": same,
        "trivial_job_new_candidate_seconds": other,
    }
    if options.json:
        print(json.dumps(result))
        return
    print_table(result)


def print_table(result: dict[str, Any]) -> None:
    wanted = WANTED[result["device"]]
    cold, fresh, spare = (result[f"{name}_seconds"] for name in ("cold_python", "fresh_worker", "spare_worker"))
    print(f"device {result['device']}, isolation: {', '.join(result['layers'])}")
    print(f"cold python, torch imported, device open  {cold * 1e3:10.1f} ms")
    print(f"fresh isolated worker                     {fresh * 1e3:10.1f} ms", end="")
    print(f"{cold / fresh:10.0f} times cheaper (wanted {wanted['fresh']})")
    print(f"isolated worker from the spares           {spare * 1e3:10.2f} ms", end="")
    print(f"{cold / spare:10.0f} times cheaper (wanted {wanted['spare']})")
    print(f"trivial job, next case of a candidate     {result['trivial_job_seconds'] * 1e3:10.1f} ms", end="")
    print(f" (aim: under {WANTED_OVERHEAD_SECONDS * 1e3:.0f} ms)")
    print(f"trivial job, next candidate               {result['trivial_job_new_candidate_seconds'] * 1e3:10.1f} ms")


if __name__ == "__main__":
    main()
