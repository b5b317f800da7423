"""Kernels judged per minute while a scripted model writes, and the share of the time in which the device is busy.

    python benchmarks/generation.py [--device cuda|cpu] [--attempts 6] [--latency 3] [--concurrency 16] [--json FILE]

Ten operators, best-of-n: of each operator's attempts a third does not compile, a third is wrong, a third is right.
All differ. On CUDA they are Triton kernels, on the CPU plain torch. Each reply takes `--latency` seconds.
Attempts are judged at effort quick, in the sandbox, by one judge unless told otherwise.

Busy is the time that the judges spent on jobs, from their records, over the time of the whole run, start-up included.
Waits for other programs that measure on the device do not count. On CUDA the driver's utilization, sampled every 50 ms,
stands beside it: the time in which some kernel ran.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torchstone import registry
from torchstone.generation import GenerationRequest, GenerationResult, generate, records_of
from torchstone.generation.providers import ModelRequest, Reply, ScriptedProvider
from torchstone.generation.run import GenerationPlan
from torchstone.schema import Case, Normal, Tensor, Uniform
from torchstone.schema.generation import Attempt, Judged, Usage
from torchstone.suites import ListedSuite

SHAPE = {"cuda": (2048, 2048), "cpu": (64, 256)}
FORMULAS = {
    "relu": ("tl.where(v <= 0.0, 0.0, v)", "torch.where(x <= 0, torch.zeros_like(x), x)"),
    "abs": ("tl.abs(v)", "torch.where(x < 0, -x, x)"),
    "neg": ("-v", "0 - x"),
    "exp": ("tl.exp(v)", "torch.exp2(x * 1.4426950408889634)"),
    "sigmoid": ("1.0 / (1.0 + tl.exp(-v))", "1 / (1 + torch.exp(-x))"),
    "square": ("v * v", "x * x"),
    "sqrt": ("tl.sqrt_rn(v)", "x ** 0.5"),
    "reciprocal": ("1.0 / v", "1 / x"),
    "floor": ("tl.floor(v)", "-torch.ceil(-x)"),
    "ceil": ("tl.ceil(v)", "-torch.floor(-x)"),
}
"""Operator -> the same in Triton and in torch."""
POSITIVE = ("sqrt",)

TRITON = """# attempt {number}
import torch
import triton
import triton.language as tl


@triton.jit
def _kernel(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x_ptr + offsets, mask=offsets < count, other=1.0).to(tl.float32)
    y = {formula}
    tl.store(y_ptr + offsets, y.to(y_ptr.dtype.element_ty), mask=offsets < {limit})


def {name}_kernel_impl(self):
    result = torch.empty_like(self)
    x = self if self.stride() == result.stride() else torch.empty_like(self).copy_(self)
    if x.numel():
        _kernel[(triton.cdiv(x.numel(), {block}),)](x, result, x.numel(), BLOCK={block})
    return result{end}
"""
TORCH = """# attempt {number}
import torch


def {name}_kernel_impl(self):
    x = self
    y = {formula}
    {spoil}
    return y{end}
"""


def code(name: str, number: int, device: str) -> str:
    """The number decides what is wrong with it: nothing, the last element, or the syntax."""
    kind = ("broken", "wrong", "right")[number % 3]
    on_gpu = device == "cuda"
    return (TRITON if on_gpu else TORCH).format(
        number=number,
        name=name,
        formula=FORMULAS[name][0 if on_gpu else 1],
        limit="count - 1" if kind == "wrong" else "count",
        spoil="y[..., -1:] = 0.5" if kind == "wrong" else "pass",
        block=256 << (number % 4),
        end="[" if kind == "broken" else "",
    )


def answer(request: ModelRequest, device: str) -> Reply:
    """One attempt, with about as many tokens as a model would take."""
    name = request.operator.split(".")[1]
    return Reply(f"```python\n{code(name, request.number, device)}```", Usage(2000, 400), "end_turn")


class Watcher:
    """Tells the progress now and then."""

    def __init__(self) -> None:
        self._made = 0

    def planned(self, plan: GenerationPlan, folder: Path) -> None:
        self._total = plan.total

    def recorded(self, record: Attempt | None) -> None:
        self._made += 1
        if self._made % 10 == 0:
            print(f"  {self._made} of {self._total}", flush=True)

    def warned(self, message: str) -> None:
        print(f"  warning: {message}", flush=True)


def run(options: argparse.Namespace, folder: Path) -> GenerationResult:
    """All attempts at all operators."""
    fill = {name: Uniform(0.1, 9.0) if name in POSITIVE else Normal() for name in FORMULAS}
    cases = [
        Case("benchmark", f"aten.{name}.default", (Tensor(SHAPE[options.device], "float32", fill[name]),), timed=True)
        for name in FORMULAS
    ]
    globals()["suite"] = lambda: ListedSuite(cases)
    registry.suites = registry.Registry("suite", {"benchmark": "__main__:suite"})
    request = GenerationRequest(
        suite="benchmark",
        dsl="triton" if options.device == "cuda" else "pytorch",
        strategy="best-of-n",
        max_attempts=options.attempts,
        concurrency=options.concurrency,
        device=options.device,
        judges=options.judges,
        output_dir=folder,
    )
    provider = ScriptedProvider(lambda asked: answer(asked, options.device), options.latency)
    return generate(request, Watcher(), provider=provider)


@contextlib.contextmanager
def utilization(device: str) -> Iterator[list[float]]:
    """Percent of the time in which a kernel ran on the first GPU, sampled while the block lasts; empty on the CPU."""
    samples: list[float] = []
    if device != "cuda":
        yield samples
        return
    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(int(os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0] or 0))
    ended = threading.Event()

    def sample() -> None:
        while not ended.wait(0.05):
            samples.append(float(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu))

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        ended.set()
        thread.join()


def figures(
    result: GenerationResult, seconds: float, options: argparse.Namespace, samples: list[float]
) -> dict[str, Any]:
    """What is printed, as numbers."""
    judged = [attempt for attempt in result.attempts if isinstance(attempt.outcome, Judged)]
    stages: Counter[str] = Counter()
    for attempt in judged:
        assert isinstance(attempt.outcome, Judged)
        for record in records_of(result.folder, attempt.outcome.records_file):
            stages.update(record.stage_seconds)
    asking = sum(attempt.asking_seconds for attempt in result.attempts) / options.concurrency
    waited = stages.pop("wait", 0.0)
    judging = stages.total() / options.judges
    wrong = [a for a in judged if a.right != (a.number % 3 == 2)]
    return {
        "device": options.device,
        "kernels": len(judged),
        "seconds": seconds,
        "per_minute": 60 * len(judged) / seconds,
        "busy_share": judging / seconds,
        "asking_seconds": asking,
        "judging_seconds": judging,
        "total_over_longer": seconds / max(len(result.attempts) * options.latency / options.concurrency, judging),
        "waited_for_others_seconds": waited,
        "stage_seconds": {stage: round(value, 2) for stage, value in stages.most_common()},
        "utilization_percent": statistics.mean(samples) if samples else None,
        "misjudged": [f"{attempt.operator}#{attempt.number}" for attempt in wrong],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--attempts", type=int, default=6, help="for each of the ten operators")
    parser.add_argument("--latency", type=float, default=3.0, help="seconds of one reply")
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--judges", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        with utilization(options.device) as samples:
            result = run(options, Path(folder))
        found = figures(result, time.perf_counter() - began, options, samples)
    print(f"{found['kernels']} kernels in {found['seconds']:.1f} s: {found['per_minute']:.0f} per minute")
    print(
        f"busy: {found['busy_share']:.0%} of the time; total over the longer of both: {found['total_over_longer']:.2f}"
    )
    print(f"asking {found['asking_seconds']:.1f} s, judging {found['judging_seconds']:.1f} s: {found['stage_seconds']}")
    if found["utilization_percent"] is not None:
        print(f"the driver's utilization: {found['utilization_percent']:.0f} %")
    print(f"misjudged: {', '.join(found['misjudged']) or 'none'}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
