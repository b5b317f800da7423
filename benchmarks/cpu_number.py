"""Whether speedups on a busy CPU are right: torch against itself, and kernels with a known amount of work.

    python benchmarks/cpu_number.py [--runs 10] [--loops 2] [--injected-repeats 10] [--json FILE]
    python benchmarks/cpu_number.py --warm [--repeats 3]

First `torchstone run --suite smoke --backend aten` again and again beside busy loops: the true ratio is 1. Printed for
each run: the speedup of its closing line, the median half width of the cases' intervals, how many of them exclude 1,
how many cases are undecided or capped, and the seconds. Then pairs of programs that compute the same with a known
ratio of work: how often the interval holds it, and the geometric mean of what is reported.

``--warm`` compares times on warm caches with those of torch.utils.benchmark, for six operators and without busy loops.
Both are the mean of the lowest third of their samples, since other programs only make them longer. torch's own median
stands beside them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from torchstone.executors.base import ExecutorOptions
from torchstone.executors.local import LocalExecutor
from torchstone.measuring import Speedup, timing
from torchstone.reports.case_results import evaluate
from torchstone.reports.summary import summarise
from torchstone.schema import (
    WEIGHTS_FILE,
    Argument,
    Case,
    Implementation,
    ImportPath,
    Job,
    Normal,
    Record,
    Scalar,
    Sequence,
    SourceFile,
    SourceFiles,
    Tensor,
    decode,
    with_problem,
)

WANTED_MEAN = (0.98, 1.02)
WANTED_HALF_WIDTH = 0.08
WANTED_EXCLUDED = 0.05
WANTED_SECONDS = 90
_LOOP = "while True: pass"


class Injected(NamedTuple):
    """Two programs with the same results."""

    name: str
    step: str
    """What is computed of `x`. Mostly arithmetic: another pass over memory that lies in caches would be quicker."""
    shape: tuple[int, ...]
    candidate: int
    """How often the kernel computes it."""
    reference: int

    @property
    def truth(self) -> float:
        return self.reference / self.candidate


INJECTED = (
    Injected("mm 256", "torch.mm(x, x)", (256, 256), 1, 1),
    Injected("mm 256", "torch.mm(x, x)", (256, 256), 2, 1),
    Injected("mm 256", "torch.mm(x, x)", (256, 256), 1, 2),
    Injected("mm 256", "torch.mm(x, x)", (256, 256), 1, 3),
    Injected("tanh 128x512", "torch.tanh(x)", (128, 512), 2, 1),
    Injected("tanh 128x512", "torch.tanh(x)", (128, 512), 1, 2),
)


def job(pair: Injected) -> Job:
    """The kernel computes the step `candidate` times, the problem that is its reference `reference` times."""
    files = SourceFile("problem.py", _problem(pair)), SourceFile(WEIGHTS_FILE, "{}")  # it has no weights
    problem = SourceFiles(files, "Model", "problem")
    kernel = SourceFiles((SourceFile("kernel.py", _model("ModelNew", pair.step, pair.candidate)),), "ModelNew", "test")
    operator = "kernelbench.cpu_number.default"
    arguments = (Sequence(()), Tensor(pair.shape, "float32", Normal()))
    case = Case("cpu_number", operator, arguments, timed=True, jitter=False, model=problem)
    return Job(case, Implementation("cpu_number", operator, with_problem(kernel, problem)), "normal")


def _problem(pair: Injected) -> str:
    inputs = f"def get_inputs():\n    return [torch.randn({', '.join(map(str, pair.shape))})]\n"
    return f"{_model('Model', pair.step, pair.reference)}\n\n{inputs}\n\ndef get_init_inputs():\n    return []\n"


def _model(name: str, step: str, times: int) -> str:
    body = "\n".join([f"        found = {step}"] * times)
    return (
        f"import torch\n\n\nclass {name}(torch.nn.Module):\n    def forward(self, x):\n{body}\n        return found\n"
    )


class Warm(NamedTuple):
    """One call that is timed on warm caches."""

    operator: str
    shapes: tuple[tuple[int, ...], ...]
    values: tuple[Any, ...] = ()
    """Arguments after the tensors."""


WARM = (
    Warm("aten.relu.default", ((1024, 512),)),
    Warm("aten.relu.default", ((64, 256),)),
    Warm("aten.add.Tensor", ((256, 256), (256, 256))),
    Warm("aten._softmax.default", ((128, 512),), (-1, False)),
    Warm("aten.mm.default", ((256, 256), (256, 256))),
    Warm("aten.sum.dim_IntList", ((512, 512),), ((1,),)),
)
_BESIDE = """
import sys, os, json, torch
from torch.utils.benchmark import Timer
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
torch.set_num_threads(1)
name, shapes, values = json.loads(sys.argv[1])
namespace, operator, overload = name.split(".")
function = getattr(getattr(getattr(torch.ops, namespace), operator), overload)
given = [torch.randn(shape) for shape in shapes] + values
found = Timer("function(*given)", globals={"function": function, "given": given}).blocked_autorange(min_run_time=0.7)
print(json.dumps(found.times))
"""


def warm_job(call: Warm) -> Job:
    """torch's own operator against itself, on warm caches."""
    tensors = tuple(Tensor(shape, "float32", Normal()) for shape in call.shapes)
    rest = tuple(_recipe(value) for value in call.values)
    case = Case("cpu_number", call.operator, (*tensors, *rest), timed=True, jitter=False)
    native = Implementation("aten", call.operator, ImportPath("torch", f"ops.{call.operator}"), "aten")
    return Job(case, native, "normal", cache="warm")


def _recipe(value: Any) -> Argument:
    return Sequence(tuple(map(Scalar, value))) if isinstance(value, tuple) else Scalar(value)


def warm_rows(repeats: int) -> Iterator[dict[str, Any]]:
    """One row for each operator: both times alternately, the lowest of each, and their ratio."""
    print("| operator | sizes | here | torch.utils.benchmark | its median | ratio |")
    print("| --- | --- | --- | --- | --- | --- |")
    for call in WARM:
        here, beside = [], []
        for _ in range(repeats):
            beside.append(_beside_ns(call))
            here += [ns for ns in _warm_ns(call) if ns > 0]
        least = [min(column) for column in zip(*beside, strict=True)]
        ours_ns = min(here, default=math.nan)
        sizes = ", ".join("x".join(map(str, shape)) for shape in call.shapes)
        row = {"operator": call.operator, "sizes": sizes, "here_ns": ours_ns, "benchmark_ns": least[0]}
        times = f"{ours_ns / 1e3:.2f} µs | {least[0] / 1e3:.2f} µs | {least[1] / 1e3:.2f} µs"
        print(f"| {call.operator} | {sizes} | {times} | {ours_ns / least[0]:.2f} |", flush=True)
        yield row


def _beside_ns(call: Warm) -> tuple[float, float]:
    """The lowest third, and the median, of torch's samples in a process of its own on the workers' core."""
    given = json.dumps([call.operator, call.shapes, [list(v) if isinstance(v, tuple) else v for v in call.values]])
    done = subprocess.run([sys.executable, "-c", _BESIDE, given], check=True, capture_output=True, text=True)
    times = sorted(1e9 * seconds for seconds in json.loads(done.stdout))
    return statistics.fmean(times[: -(-len(times) // 3)]), statistics.median(times)


def _warm_ns(call: Warm) -> Iterator[float]:
    """Of the reference."""
    for record in LocalExecutor(ExecutorOptions(device="cpu")).run([warm_job(call)]):
        if record.measurement is not None:
            yield timing(record.measurement).reference_ns


@contextlib.contextmanager
def busy(loops: int) -> Iterator[None]:
    """So many processes beside that never sleep."""
    started = [subprocess.Popen([sys.executable, "-c", _LOOP]) for _ in range(loops)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--loops", type=int, default=2, help="busy loops beside")
    parser.add_argument("--injected-repeats", type=int, default=10)
    parser.add_argument("--warm", action="store_true", help="compare with torch.utils.benchmark, and nothing else")
    parser.add_argument("--repeats", type=int, default=3, help="of that comparison")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.warm:
        print(f"load {os.getloadavg()[0]:.1f}\n")
        found = list(warm_rows(options.repeats))
        if options.json:
            options.json.write_text(json.dumps(found, indent=1))
        return
    with busy(options.loops):
        print(f"{options.loops} busy loops beside, load {os.getloadavg()[0]:.1f}\n")
        runs = list(smoke_runs(options.runs)) if options.runs else []
        rows = list(injected_rows(options.injected_repeats)) if options.injected_repeats else []
    if options.json:
        options.json.write_text(json.dumps({"runs": runs, "injected": rows}, indent=1))


def smoke_runs(count: int) -> Iterator[dict[str, Any]]:
    """One row for each run of smoke x aten, and one for all."""
    print("| run | speedup | median half width | exclude 1 | undecided | capped | seconds | load |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    every: list[Speedup] = []
    rows: list[dict[str, Any]] = []
    for number in range(1, count + 1):
        began = time.monotonic()
        records = _smoke()
        seconds = time.monotonic() - began
        speedups = [item.speedup for item in evaluate(records) if item.speedup is not None]
        every += speedups
        summary = summarise(records)
        row: dict[str, Any] = {
            "speedup": summary.geomean_speedup,
            **_widths(speedups),
            "undecided": summary.cases_unresolved,
            "capped": sum(bool(each.capped) for each in speedups),
            "seconds": seconds,
            "load": os.getloadavg()[0],
        }
        rows.append(row)
        _print_run(str(number), row)
        yield row
    mean = math.exp(statistics.fmean(math.log(row["speedup"]) for row in rows))
    sums = {name: sum(row[name] for row in rows) for name in ("undecided", "capped")}
    worst = max(row["seconds"] for row in rows), statistics.fmean(row["load"] for row in rows)
    _print_run("all", {"speedup": mean, **_widths(every), **sums, "seconds": worst[0], "load": worst[1]})
    shown = f"±{WANTED_HALF_WIDTH:.0%}, {WANTED_EXCLUDED:.0%}, {WANTED_SECONDS} s a run"
    print(f"\nwanted: mean {WANTED_MEAN[0]} to {WANTED_MEAN[1]}, {shown}\n")


def _smoke() -> list[Record]:
    with tempfile.TemporaryDirectory() as folder:
        command = ["-m", "torchstone", "run", "--suite", "smoke", "--backend", "aten", "--device", "cpu"]
        where = ["--output-dir", folder, "--run-id", "smoke"]
        subprocess.run([sys.executable, *command, *where], check=True, capture_output=True)
        lines = (Path(folder) / "smoke" / "records.jsonl").read_bytes().splitlines()
    return [decode(line, Record) for line in lines]


def _widths(speedups: list[Speedup]) -> dict[str, float]:
    halves = [math.expm1(math.log(each.high / each.low) / 2) for each in speedups]
    excluded = [each for each in speedups if not each.low <= 1 <= each.high]
    return {
        "half_width": statistics.median(halves) if halves else math.nan,
        "excluded": len(excluded),
        "intervals": len(speedups),
    }


def _print_run(name: str, row: dict[str, Any]) -> None:
    excluded = f"{row['excluded']} of {row['intervals']}"
    cells = [name, f"{row['speedup']:.3f}x", f"±{row['half_width']:.1%}", excluded, f"{row['undecided']}"]
    cells += [f"{row['capped']}", f"{row['seconds']:.0f}", f"{row['load']:.1f}"]
    print(f"| {' | '.join(cells)} |", flush=True)


def injected_rows(repeats: int) -> Iterator[dict[str, Any]]:
    """One row for each pair of programs."""
    print("| work | truth | reported, mean | intervals that hold the truth | undecided | words |")
    print("| --- | --- | --- | --- | --- | --- |")
    for pair in INJECTED:
        found = list(_timed(pair, repeats))
        known = [each for each in found if each is not None]
        mean = math.exp(statistics.fmean(math.log(each.ratio) for each in known)) if known else math.nan
        held = sum(each.low <= pair.truth <= each.high for each in known)
        words = {
            word: sum(each.outcome == word for each in known) for word in ("faster", "slower", "same", "undecided")
        }
        row: dict[str, Any] = {
            "work": f"{pair.name}, {pair.candidate} against {pair.reference}",
            "truth": pair.truth,
            "mean": mean,
            "held": held,
            "known": len(known),
            "undecided": len(found) - len(known),
            "words": {word: count for word, count in words.items() if count},
        }
        said = ", ".join(f"{count} {word}" for word, count in row["words"].items())
        start = f"| {row['work']} | {pair.truth:.2f} | {mean:.3f}"
        print(f"{start} | {held} of {len(known)} | {row['undecided']} | {said} |", flush=True)
        yield row


def _timed(pair: Injected, repeats: int) -> Iterator[Speedup | None]:
    """Each time in a judge of its own: in another memory."""
    for _ in range(repeats):
        for record in LocalExecutor(ExecutorOptions(device="cpu")).run([job(pair)]):
            yield None if record.measurement is None else timing(record.measurement).speedup


if __name__ == "__main__":
    main()
