"""Kernels judged per minute, against a serial loop that does what most evaluators do, in the same run.

    python benchmarks/throughput.py [--device cuda|cpu] [--kernels 200] [--judges N] [--peer-kernels 60] [--json FILE]

The kernels are generated and all different: a third does not work at all, a third is wrong (zeros, a dropped tail, an
error within the usual tolerance, an answer kept from an earlier call), a third is right. On CUDA they are Triton
kernels, on the CPU plain torch. Torchstone judges them at effort quick, each in a sandboxed process of its own. The
loop runs them in one process: exec, call, ``torch.allclose`` with 1e-2, then do_bench of the kernel and of torch (on
the CPU a loop with a timer). Its clock starts when it has run a kernel; Torchstone's when nothing has been started.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import itertools
import json
import math
import os
import random
import statistics
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from torchstone.executors import ExecutorOptions
from torchstone.executors.devices import find_devices
from torchstone.executors.local import LocalExecutor
from torchstone.schema import (
    Agrees,
    Case,
    Implementation,
    Job,
    Normal,
    Record,
    SourceFile,
    SourceFiles,
    Tensor,
    explain,
    verdict_name,
)

WANTED = 5.0
PEER_TOLERANCE = 1e-2
OPERATORS = {"relu": "aten.relu.default", "abs": "aten.abs.default", "neg": "aten.neg.default"}
SHAPE = {"cuda": (2048, 2048), "cpu": (64, 256)}

TRITON_FORMULAS = {"relu": "tl.where(v < 0.0, 0.0, v)", "abs": "tl.abs(v)", "neg": "-v"}
TORCH_FORMULAS = {"relu": "x.clamp(min=0)", "abs": "torch.where(x < 0, -x, x)", "neg": "0 - x"}

TRITON = """# kernel {number}
import torch
import triton
import triton.language as tl

_kept = []


@triton.jit
def _{name}_{number}(x, y, count, SIZE: tl.constexpr):
    places = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    v = tl.load(x + places, mask=places < count, other=0.0)
    r = {formula}
    tl.store(y + places, r + {added}, mask=places < {limit})


def kernel(x):
    x = x.contiguous()
    y = torch.{new}_like(x)
    if {condition}:
        _{name}_{number}[(triton.cdiv(x.numel(), {size}),)](x, y, x.numel(), SIZE={size}, num_warps={warps})
    return {result}
"""

TORCH = """# kernel {number}
import torch

_kept = []


def _{name}_{number}(x):
    r = {formula}
    return r + {added}


def kernel(x):
    x = x.contiguous()
    count = x.numel()
    y = torch.{new}_like(x)
    if {condition}:
        y.view(-1)[:{limit}] = _{name}_{number}(x.view(-1))[:{limit}]
    return {result}
"""

STALE = "_kept[0] if _kept and _kept[0].shape == y.shape else _kept.append(y) or y"


class Kernel(NamedTuple):
    number: int
    name: str
    kind: str
    """``broken``, ``wrong`` or ``right``."""
    detail: str
    source: str


def generate(count: int, device: str, seed: int = 7) -> list[Kernel]:
    """As many kernels, one third of each kind, in random order."""
    chance = random.Random(seed)
    kinds = [("broken", "wrong", "right")[number % 3] for number in range(count)]
    chance.shuffle(kinds)
    turns = {
        "broken": itertools.cycle(("syntax", "import", "compile")),
        "wrong": itertools.cycle(("zeros", "tail", "tolerance", "stale")),
        "right": itertools.cycle(("",)),
    }
    return [_kernel(number, kind, next(turns[kind]), device, chance) for number, kind in enumerate(kinds)]


def _kernel(number: int, kind: str, detail: str, device: str, chance: random.Random) -> Kernel:
    name = chance.choice(sorted(OPERATORS))
    on_cuda = device == "cuda"
    parts: dict[str, Any] = {
        "number": number,
        "name": name,
        "formula": (TRITON_FORMULAS if on_cuda else TORCH_FORMULAS)[name],
        "size": chance.choice((256, 512, 1024, 2048)),
        "warps": chance.choice((2, 4, 8)),
        "added": f"0.0 * {number}.0",
        "limit": "count",
        "new": "empty",
        "condition": "True",
        "result": "y",
    }
    changes: dict[str, dict[str, str]] = {
        "zeros": {"new": "zeros", "condition": "False"},
        "tail": {"new": "zeros", "limit": "count - 7"},
        "tolerance": {"added": f"{1 + number % 9}e-3"},
        "stale": {"result": STALE},
        "compile": {"formula": f"{'tl' if on_cuda else 'torch'}.no_such_function_{number}({'v' if on_cuda else 'x'})"},
    }
    source = (TRITON if on_cuda else TORCH).format(**{**parts, **changes.get(detail, {})})
    if detail == "syntax":
        source = source.replace("def kernel(x):", "def kernel(x)")
    if detail == "import":
        source = f"import no_such_module_{number}\n{source}"
    return Kernel(number, name, kind, detail, source)


class Outcome(NamedTuple):
    """What one of the two ways made of the kernels."""

    seconds: float
    verdicts: dict[int, bool]
    """Accepted or not, by kernel."""
    shares: dict[str, float]
    spread: float
    """Median half width of the speedup's interval; NaN where there is none."""
    first_seconds: float
    judges: int


def with_torchstone(kernels: list[Kernel], device: str, judges: int | None) -> Outcome:
    shape = SHAPE[device]
    jobs: list[Job] = []
    kernel_of: dict[str, Kernel] = {}
    for kernel in kernels:
        operator = OPERATORS[kernel.name]
        case = Case("throughput", operator, (Tensor(shape, "float32", Normal()),), timed=True)
        files = SourceFiles((SourceFile("kernel.py", kernel.source),), "kernel")
        implementation = Implementation("throughput", operator, files, "triton" if device == "cuda" else "python")
        jobs.append(Job(case, implementation, "quick"))
        kernel_of[jobs[-1].key] = kernel
    options = ExecutorOptions(device=device, judges_per_device=judges)
    records: list[Record] = []
    arrivals: list[float] = []
    began = time.perf_counter()
    for record in LocalExecutor(options).run(jobs):
        records.append(record)
        arrivals.append(time.perf_counter())
        _progress("torchstone", len(records), len(jobs), began)
    for record in records:
        kernel = kernel_of[record.job_key]
        if isinstance(record.verdict, Agrees) != (kernel.kind == "right"):
            print(f"  kernel {kernel.number} ({kernel.kind} {kernel.detail}): {verdict_name(record.verdict)},", end="")
            print(f" {explain(record.verdict)[:200]}")
    shares: dict[str, float] = defaultdict(float)
    for record in records:
        for stage, seconds in record.stage_seconds.items():
            shares[stage] += seconds
    count = options.judges_per_device * len(find_devices(device))
    spent = count * (arrivals[-1] - arrivals[0])
    shares["other"] = max(0.0, spent - sum(shares.values()))
    return Outcome(
        arrivals[-1] - began,
        {kernel_of[record.job_key].number: isinstance(record.verdict, Agrees) for record in records},
        dict(shares),
        _spread(records),
        arrivals[0] - began,
        count,
    )


def _spread(records: list[Record]) -> float:
    from torchstone.measuring import timing

    found = [timing(record.measurement).speedup for record in records if record.measurement is not None]
    widths = [math.log(each.high / each.low) / 2 for each in found if each is not None]
    return statistics.median(widths) if widths else math.nan


def with_a_loop(kernels: list[Kernel], device: str) -> Outcome:
    """One process, one kernel after another, as most evaluators do it."""
    import torch

    torch.manual_seed(0)
    inputs = torch.randn(SHAPE[device], device=device)
    references: dict[str, Callable[[Any], Any]] = {name: getattr(torch, name) for name in OPERATORS}
    shares: dict[str, float] = defaultdict(float)
    verdicts: dict[int, bool] = {}
    with tempfile.TemporaryDirectory() as folder, _triton_cache(folder):
        warm = generate(3, device, seed=11)
        for kernel in warm:
            with contextlib.suppress(Exception):
                _load(kernel._replace(number=-1 - kernel.number), folder)(inputs)
        _time_of(lambda: torch.relu(inputs), device)
        began = time.perf_counter()
        for kernel in kernels:
            verdicts[kernel.number] = False
            try:
                with _counted(shares, "compile"):
                    candidate = _load(kernel, folder)
                    result = candidate(inputs)
                    _synchronize(device)
                with _counted(shares, "check"):
                    expected = references[kernel.name](inputs)
                    if not torch.allclose(result, expected, rtol=PEER_TOLERANCE, atol=PEER_TOLERANCE):
                        continue
            except Exception:  # noqa: BLE001 - whatever a kernel raises
                continue
            with _counted(shares, "measure"):
                _time_of(lambda candidate=candidate: candidate(inputs), device)  # type: ignore[misc]
                _time_of(lambda kernel=kernel: references[kernel.name](inputs), device)  # type: ignore[misc]
            verdicts[kernel.number] = True
            _progress("loop", len(verdicts), len(kernels), began)
        seconds = time.perf_counter() - began
    return Outcome(seconds, verdicts, dict(shares), math.nan, 0.0, 1)


def _load(kernel: Kernel, folder: str) -> Callable[[Any], Any]:
    """From a file of its own: Triton reads its kernels' source from disk."""
    path = Path(folder) / f"kernel_{kernel.number % 100_000}.py"
    path.write_text(kernel.source)
    spec = importlib.util.spec_from_file_location(f"throughput_kernel_{kernel.number % 100_000}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Callable[[Any], Any] = module.kernel
    return found


def _time_of(action: Callable[[], Any], device: str) -> float:
    if device == "cuda":
        from triton.testing import do_bench

        return float(do_bench(action))
    began = time.perf_counter()
    calls = 0
    while time.perf_counter() - began < 0.025:
        action()
    began = time.perf_counter()
    while time.perf_counter() - began < 0.1:
        action()
        calls += 1
    return (time.perf_counter() - began) / calls * 1e3


@contextlib.contextmanager
def _counted(shares: dict[str, float], name: str) -> Iterator[None]:
    began = time.perf_counter()
    try:
        yield
    finally:
        shares[name] += time.perf_counter() - began


@contextlib.contextmanager
def _triton_cache(folder: str) -> Iterator[None]:
    """An empty one: kernels of an earlier run must not come from it."""
    os.environ["TRITON_CACHE_DIR"] = folder
    try:
        yield
    finally:
        del os.environ["TRITON_CACHE_DIR"]


def _synchronize(device: str) -> None:
    if device == "cuda":
        import torch

        torch.cuda.synchronize()


def _progress(who: str, done: int, of: int, began: float) -> None:
    if done % 20 == 0 or done == of:
        print(f"  {who}: {done} of {of} after {time.perf_counter() - began:.1f} s", file=sys.stderr, flush=True)


def describe(name: str, outcome: Outcome, kernels: list[Kernel]) -> dict[str, Any]:
    """Print one of the two, and return its figures."""
    steady = outcome.seconds - outcome.first_seconds
    row: dict[str, Any] = {
        "kernels": len(kernels),
        "judges": outcome.judges,
        "seconds": outcome.seconds,
        "first_record_seconds": outcome.first_seconds,
        "per_minute": 60 * len(kernels) / outcome.seconds,
        "per_minute_once_started": 60 * (len(kernels) - bool(outcome.first_seconds)) / steady,
        "stage_seconds": {stage: round(seconds, 3) for stage, seconds in sorted(outcome.shares.items())},
        "speedup_half_width": outcome.spread,
    }
    wrongly = Counter(
        f"{kernel.kind} {kernel.detail}".strip()
        for kernel in kernels
        if outcome.verdicts[kernel.number] != (kernel.kind == "right")
    )
    row["wrong_verdicts"] = dict(wrongly)
    row["wrong_accepted"] = sum(number for kind, number in wrongly.items() if not kind.startswith("right"))
    row["right_refused"] = wrongly["right"]
    once = f"{row['per_minute_once_started']:.0f} after the first record, at {outcome.first_seconds:.1f} s"
    print(f"{name}: {len(kernels)} kernels in {outcome.seconds:.1f} s: {row['per_minute']:.0f} per minute", end="")
    print(f" ({once})" if outcome.first_seconds else "", f"{outcome.judges} at a time", sep="; ")
    accepted, refused = row["wrong_accepted"], row["right_refused"]
    print(f"  wrong or broken ones accepted: {accepted}, right ones refused: {refused} {dict(wrongly) or ''}")
    total = sum(outcome.shares.values())
    told = ", ".join(
        f"{stage} {seconds:.1f} s ({seconds / total:.0%})"
        for stage, seconds in sorted(outcome.shares.items(), key=lambda item: -item[1])
    )
    print(f"  all at a time together: {told}")
    if not math.isnan(outcome.spread):
        print(f"  median half width of the speedup's 95 % interval: {outcome.spread:.2%}")
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--kernels", type=int, default=200)
    parser.add_argument("--peer-kernels", type=int, help="how many of them the loop gets; all unless told")
    parser.add_argument("--judges", type=int, default=4)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    kernels = generate(options.kernels, options.device)
    ours = with_torchstone(kernels, options.device, options.judges)
    rows = {"torchstone": describe("torchstone", ours, kernels)}
    write(options.json, {"device": options.device, **rows})
    few = kernels[: options.peer_kernels or len(kernels)]
    rows["loop"] = describe("serial loop", with_a_loop(few, options.device), few)
    ratio = rows["torchstone"]["per_minute"] / rows["loop"]["per_minute"]
    started = rows["torchstone"]["per_minute_once_started"] / rows["loop"]["per_minute"]
    print(f"torchstone judges {ratio:.2f} times as many per minute (wanted: {WANTED:g}); once started {started:.2f}")
    write(options.json, {"device": options.device, "ratio": ratio, "ratio_once_started": started, **rows})


def write(path: Path | None, found: dict[str, Any]) -> None:
    """As soon as a figure is known: the rest may be cut."""
    if path is not None:
        path.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
