"""Kernels judged per minute while a scripted model writes, and how well asking and judging overlap.

    python benchmarks/generation.py [--device cuda|cpu] [--attempts 6] [--latency 3] [--concurrency 16] [--repeats 1]

Ten operators, best-of-n: of each operator's attempts a third does not compile, a third is wrong, a third is right.
All differ. On CUDA they are Triton kernels, on the CPU plain torch. Each reply takes `--latency` seconds.
Attempts are judged at effort quick, in the sandbox, by one judge unless told otherwise.

The same kernels are made three times, start-up and end included each time:

- asking alone: a run of generation whose judge answers at once;
- judging alone: a `Judge` that has all kernels from the beginning, without a run of generation;
- together: the run of generation.

The ratio is together over the longer of the two; 1 is complete overlap. With `--repeats` the three take turns, and
medians are printed. A judge also waits for other programs that measure on the device: the ratio means something only
where those waits, which are printed, are short. Busy is the share of the time together in which a judge starts or has
a kernel. On CUDA the driver's utilization, sampled every 50 ms, stands beside it: the time in which some kernel ran.
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
from torchstone.api import Evaluation, Judge
from torchstone.executors import FakeExecutor
from torchstone.executors.devices import visible_uuids
from torchstone.generation import GenerationRequest, GenerationResult, generate, records_of
from torchstone.generation.kernel_judge import judge_settings
from torchstone.generation.providers import ModelRequest, Reply, ScriptedProvider
from torchstone.generation.run import GenerationPlan
from torchstone.schema import (
    Agrees,
    Case,
    Disagrees,
    ErrorStatistics,
    Job,
    Normal,
    SourceFiles,
    Tensor,
    Uniform,
    Verdict,
)
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


def cases(device: str) -> list[Case]:
    """One timed case for each operator."""
    fill = {name: Uniform(0.1, 9.0) if name in POSITIVE else Normal() for name in FORMULAS}
    return [
        Case("benchmark", f"aten.{name}.default", (Tensor(SHAPE[device], "float32", fill[name]),), timed=True)
        for name in FORMULAS
    ]


def request_in(folder: Path, options: argparse.Namespace) -> GenerationRequest:
    """All attempts at all operators."""
    return GenerationRequest(
        suite="benchmark",
        dsl="triton" if options.device == "cuda" else "pytorch",
        strategy=options.strategy,
        max_attempts=options.attempts,
        concurrency=options.concurrency,
        device=options.device,
        judges=options.judges,
        output_dir=folder,
    )


class BusyJudge(Judge):
    """A judge that keeps when its queue was not empty."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.busy_seconds, self._since, self._guard = 0.0, 0.0, threading.Lock()
        self._pending = 0

    async def aevaluate(self, *given: Any, **settings: Any) -> Evaluation:
        self._count(1)
        try:
            return await super().aevaluate(*given, **settings)
        finally:
            self._count(-1)

    def _count(self, change: int) -> None:
        with self._guard:
            now = time.perf_counter()
            if self._pending:
                self.busy_seconds += now - self._since
            self._since, self._pending = now, self._pending + change


def together(folder: Path, options: argparse.Namespace) -> tuple[GenerationResult, float, float]:
    """The run of generation, its seconds, and those in which a judge had a kernel."""
    judges: list[BusyJudge] = []

    def opened(request: GenerationRequest, device: str) -> Judge:
        judges.append(BusyJudge(**judge_settings(request, device)))
        return judges[0]

    began = time.perf_counter()
    provider = ScriptedProvider(lambda asked: answer(asked, options.device), options.latency)
    result = generate(request_in(folder, options), Watcher(), provider=provider, judge=opened)
    return result, time.perf_counter() - began, judges[0].busy_seconds


def asking_alone(folder: Path, options: argparse.Namespace) -> float:
    """Seconds of a run whose judge answers at once, with the verdicts that are due."""

    def decide(job: Job) -> Verdict:
        assert isinstance(job.implementation.origin, SourceFiles)
        number = int(job.implementation.origin.files[0].text.split()[2])
        return Agrees(ErrorStatistics(), 1) if number % 3 == 2 else Disagrees("check", "values", "output 0 differs")

    def opened(request: GenerationRequest, device: str) -> Judge:
        return Judge(device=device, executor=FakeExecutor(decide))

    began = time.perf_counter()
    provider = ScriptedProvider(lambda asked: answer(asked, options.device), options.latency)
    generate(request_in(folder, options), Watcher(), provider=provider, judge=opened, required_layers=frozenset())
    return time.perf_counter() - began


def judging_alone(result: GenerationResult, options: argparse.Namespace) -> tuple[float, float]:
    """Seconds of a judge that has the kernels of this run from the beginning, in their order; and its waits."""
    chosen = {case.operator: (case,) for case in cases(options.device)}
    request = request_in(result.folder, options)
    began = time.perf_counter()
    with Judge(**judge_settings(request, options.device)) as judge:
        futures = [
            judge.submit(result.folder / str(each.file), each.operator, cases=chosen[each.operator])
            for each in result.attempts
            if each.file is not None
        ]
        records = [record for future in futures for record in future.result().records]
    return time.perf_counter() - began, sum(record.stage_seconds.get("wait", 0.0) for record in records)


@contextlib.contextmanager
def utilization(device: str) -> Iterator[list[float]]:
    """Percent of the time in which a kernel ran on the first GPU, sampled while the block lasts; empty on the CPU."""
    samples: list[float] = []
    if device != "cuda":
        yield samples
        return
    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByUUID(visible_uuids(os.environ)[0])
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


def misjudged(result: GenerationResult) -> list[str]:
    """Attempts whose verdict is not the one that is due."""
    judged = [attempt for attempt in result.attempts if isinstance(attempt.outcome, Judged)]
    return [f"{each.operator}#{each.number}" for each in judged if each.right != (each.number % 3 == 2)]


def stages(result: GenerationResult) -> dict[str, float]:
    """Seconds of the judges in each stage, from the records."""
    found: Counter[str] = Counter()
    for attempt in result.attempts:
        if isinstance(attempt.outcome, Judged):
            for record in records_of(result.folder, attempt.outcome.records_file):
                found.update(record.stage_seconds)
    return {stage: round(value, 2) for stage, value in found.most_common()}


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """All repetitions, the three in turn."""
    rounds: list[dict[str, float]] = []
    wrong: list[str] = []
    with utilization(options.device) as samples:
        for _ in range(options.repeats):
            with tempfile.TemporaryDirectory() as folder:
                result, seconds, busy = together(Path(folder) / "together", options)
                judging, waits = judging_alone(result, options)
                asking = asking_alone(Path(folder) / "asking", options)
                wrong += misjudged(result)
                spent = stages(result)
                found = {"together": seconds, "judging": judging, "asking": asking, "busy": busy / seconds}
                rounds.append({**found, "waits_together": spent.get("wait", 0.0), "waits_judging": waits})
                kernels = sum(isinstance(attempt.outcome, Judged) for attempt in result.attempts)
            told = _figures(options.device, rounds, kernels, spent, wrong, list(samples))
            if options.json:  # after each round: the rest may be cut
                options.json.write_text(json.dumps(told, indent=1))
    return told


def _figures(
    device: str,
    rounds: list[dict[str, float]],
    kernels: int,
    spent: dict[str, float],
    wrong: list[str],
    samples: list[float],
) -> dict[str, Any]:
    """Of all rounds so far. ``kernels`` and ``spent`` (seconds of each stage): of the last one."""
    middle = {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}
    return {
        "device": device,
        "kernels": kernels,
        "together_seconds": middle["together"],
        "asking_seconds": middle["asking"],
        "judging_seconds": middle["judging"],
        "busy_share": middle["busy"],
        "per_minute": 60 * kernels / middle["together"],
        "ratio": statistics.median(each["together"] / max(each["asking"], each["judging"]) for each in rounds),
        "waits_together_seconds": middle["waits_together"],
        "waits_judging_seconds": middle["waits_judging"],
        "rounds": rounds,
        "stage_seconds": spent,
        "utilization_percent": statistics.mean(samples) if samples else None,
        "misjudged": wrong,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--attempts", type=int, default=6, help="for each of the ten operators")
    parser.add_argument("--strategy", choices=["best-of-n", "refine"], default="best-of-n")
    parser.add_argument("--latency", type=float, default=3.0, help="seconds of one reply")
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--judges", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found_cases = cases(options.device)
    globals()["suite"] = lambda: ListedSuite(found_cases)
    registry.suites = registry.Registry("suite", {"benchmark": "__main__:suite"})
    found = measured(options)
    print(f"{found['kernels']} kernels in {found['together_seconds']:.1f} s: {found['per_minute']:.0f} per minute")
    print(
        f"asking alone {found['asking_seconds']:.1f} s, judging alone {found['judging_seconds']:.1f} s, together "
        f"{found['together_seconds']:.1f} s: {found['ratio']:.2f} times the longer"
    )
    print(f"judge busy {found['busy_share']:.0%} of the time together")
    waits = found["waits_judging_seconds"], found["waits_together_seconds"]
    print(f"of that waited for other programs: judging alone {waits[0]:.1f} s, together {waits[1]:.1f} s")
    print(f"stages of the judge, in seconds: {found['stage_seconds']}")
    if found["utilization_percent"] is not None:
        print(f"the driver's utilization: {found['utilization_percent']:.0f} %")
    print(f"misjudged: {', '.join(found['misjudged']) or 'none'}")


if __name__ == "__main__":
    main()
