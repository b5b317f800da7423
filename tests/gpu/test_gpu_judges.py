"""Several judges on one GPU. Run on a GPU machine: ``make test ARGS="-m gpu tests/gpu/test_gpu_judges.py"``."""

from __future__ import annotations

import itertools

import pytest

from torchstone.executors import ExecutorOptions
from torchstone.executors.local import LocalExecutor
from torchstone.schema import (
    Agrees,
    Case,
    Crashed,
    Disagrees,
    Implementation,
    Job,
    Normal,
    SourceFile,
    SourceFiles,
    Tensor,
    explain,
)

pytestmark = pytest.mark.gpu

TIMED = Case("test", "aten.relu.default", (Tensor((512, 512), "float32", Normal()),), timed=True)
TRITON = """
import os
os.environ["CUDA_VISIBLE_DEVICES"] = "63"  # the device has been chosen before
import torch, triton, triton.language as tl

@triton.jit
def _kernel_{number}(x, y, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    values = tl.load(x + offsets, mask=inside)
    tl.store(y + offsets, {result}, mask=inside)

def kernel(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    _kernel_{number}[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y
"""
RESULTS = {
    "right": "tl.where(values < 0.0, 0.0, values)",
    "wrong": "values",
    "broken": "tl.no_such_function(x)",
}


def source(text: str) -> Implementation:
    return Implementation("test", TIMED.operator, SourceFiles((SourceFile("kernel.py", text),), "kernel"), "triton")


def test_three_judges_give_the_verdicts_of_one_and_never_measure_at_once() -> None:
    kinds = [kind for kind in RESULTS for _ in range(4)]
    jobs = [
        Job(TIMED, source(TRITON.format(number=number, result=RESULTS[kind])), "quick")
        for number, kind in enumerate(kinds)
    ]
    options = ExecutorOptions(device="cuda:0", judges_per_device=3)
    records = {record.job_key: record for record in LocalExecutor(options).run(jobs)}
    assert len(records) == len(jobs)
    expected = {"right": Agrees, "wrong": Disagrees, "broken": Crashed}
    for kind, job in zip(kinds, jobs, strict=True):
        verdict = records[job.key].verdict
        assert isinstance(verdict, expected[kind]), explain(verdict)
        print(kind, records[job.key].stage_seconds)
    spans = sorted(
        (record.measurement.began_unix_ns, record.measurement.ended_unix_ns)
        for record in records.values()
        if record.measurement is not None
    )
    assert len(spans) == 4
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))
