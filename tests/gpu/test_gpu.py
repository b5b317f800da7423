"""What only a real device can show. Run on a GPU machine: ``make test ARGS="-m gpu"``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from torchstone.executors import ExecutorOptions
from torchstone.executors.local import LocalExecutor
from torchstone.schema import (
    Agrees,
    Case,
    Crashed,
    Deadlines,
    Disagrees,
    Implementation,
    Job,
    Normal,
    Record,
    SourceFile,
    SourceFiles,
    Tensor,
    TimedOut,
)

pytestmark = pytest.mark.gpu

SOURCE = Path(__file__).parents[2] / "src"
# No hidden variants: these kernels know one layout, and are about what they do to the device.
RELU = Case("test", "aten.relu.default", (Tensor((1000, 17), "float32", Normal()),), jitter=False)

TRITON = """
import torch, triton, triton.language as tl

@triton.jit
def _kernel(x, y, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    {body}

def kernel(x):
    y = torch.empty_like(x)
    _kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y
"""
GOOD = """values = tl.load(x + offsets, mask=inside)
    tl.store(y + offsets, tl.where(values < 0.0, 0.0, values), mask=inside)"""
WRONG = "tl.store(y + offsets, tl.load(x + offsets, mask=inside), mask=inside)"
ILLEGAL = "tl.store(y + offsets + (1 << 45), 1.0)"
ENDLESS = """done = tl.load(x) * 0
    while done == 0:
        tl.atomic_add(y, 0.0)
    tl.store(y + offsets, done, mask=inside)"""

ASSERT = """
import torch
def kernel(x):
    torch.zeros(3, device=x.device)[torch.tensor([7], device=x.device)].sum()
    return x.clamp(min=0)
"""


def source(text: str) -> Implementation:
    return Implementation("test", RELU.operator, SourceFiles((SourceFile("kernel.py", text),), "kernel"), "triton")


def judge(*jobs: Job) -> list[Record]:
    records = {record.job_key: record for record in LocalExecutor(ExecutorOptions(device="cuda:0")).run(jobs)}
    return [records[job.key] for job in jobs]


def test_bad_kernels_cost_their_own_record_and_nothing_else() -> None:
    patient = Deadlines(compile_seconds=20)
    jobs = [
        Job(RELU, source(TRITON.format(body=GOOD)), deadlines=patient),
        Job(RELU, source(TRITON.format(body=WRONG)), deadlines=patient),
        Job(RELU, source(TRITON.format(body=ILLEGAL)), deadlines=patient),
        Job(RELU, source("# again\n" + TRITON.format(body=GOOD)), deadlines=patient),
        Job(RELU, source(ASSERT), deadlines=patient),
        Job(RELU, source("# and again\n" + TRITON.format(body=GOOD)), deadlines=patient),
        Job(RELU, source(TRITON.format(body=ENDLESS)), deadlines=patient),
        Job(RELU, source("# once more\n" + TRITON.format(body=GOOD)), deadlines=patient),
    ]
    good, wrong, illegal, again, failed_assert, and_again, endless, once_more = (r.verdict for r in judge(*jobs))
    assert isinstance(good, Agrees)
    assert isinstance(wrong, Disagrees)
    assert isinstance(illegal, Crashed), illegal
    assert (illegal.kind, illegal.stage) == ("device", "compile")
    assert isinstance(again, Agrees)
    assert isinstance(failed_assert, Crashed), failed_assert
    assert failed_assert.kind == "device"
    assert isinstance(and_again, Agrees)
    assert isinstance(endless, TimedOut), endless
    assert endless.stage == "compile"
    assert isinstance(once_more, Agrees)


def test_every_isolation_layer_holds_beside_cuda() -> None:
    (record,) = judge(Job(RELU, source(TRITON.format(body=GOOD))))
    missing = [layer for layer in record.isolation.layers if not layer.active]
    assert os.geteuid() != 0 or missing == []


def test_device_memory_is_freed_between_jobs() -> None:
    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    total = pynvml.nvmlDeviceGetMemoryInfo(handle).total
    elements = total // 5 // 4  # input, output, reference and copies: a second such job only fits if the first is gone
    cases = [Case("test", RELU.operator, (Tensor((elements // 8 + n,), "float32", Normal()),)) for n in range(3)]
    copies = source("def kernel(x): return x.clamp(min=0)")
    assert all(isinstance(record.verdict, Agrees) for record in judge(*(Job(case, copies) for case in cases)))


def test_smoke_on_the_gpu_agrees_throughout(tmp_path: Path) -> None:
    command = [
        *(sys.executable, "-m", "torchstone", "run", "--suite", "smoke", "--backend", "aten", "--device", "cuda"),
        *("--output-dir", str(tmp_path), "--run-id", "smoke", "--json"),
    ]
    paths = os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH", "")]))
    finished = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, timeout=300
    )
    records = [json.loads(line) for line in (tmp_path / "smoke" / "records.jsonl").read_text().splitlines()]
    wrong = [
        (r["case"]["operator"], r["case"]["args"], r["verdict"]) for r in records if r["verdict"]["type"] != "agrees"
    ]
    assert wrong == []
    assert finished.returncode == 0, finished.stderr
