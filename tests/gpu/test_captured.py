"""Captured calls: device time by graphs, what they cost to start, and what happens where they cannot be captured."""

from __future__ import annotations

import pytest

from torchstone.executors import ExecutorOptions
from torchstone.executors.local import LocalExecutor
from torchstone.measuring import Timing, timing
from torchstone.redteam import read_corpus
from torchstone.redteam.fixture_inputs import CASES
from torchstone.schema import (
    Agrees,
    Case,
    Implementation,
    ImportPath,
    Job,
    Normal,
    Record,
    SourceFile,
    SourceFiles,
    Tensor,
)

pytestmark = pytest.mark.gpu

SMALL = Case("test", "aten.relu.default", (Tensor((64, 64), "float32", Normal()),), timed=True, jitter=False)
INPLACE = Case("test", "aten.relu_.default", (Tensor((256, 256), "float32", Normal()),), timed=True, jitter=False)
SYNCHRONISES = "import torch\ndef kernel(x):\n    float(x.sum())\n    return torch.relu(x)\n"


def source(case: Case, text: str) -> Implementation:
    return Implementation("test", case.operator, SourceFiles((SourceFile("kernel.py", text),), "kernel"), "python")


def native(case: Case) -> Implementation:
    return Implementation("aten", case.operator, ImportPath("torch", f"ops.{case.operator}"), "aten")


def judge(*jobs: Job) -> list[tuple[Record, Timing]]:
    records = {record.job_key: record for record in LocalExecutor(ExecutorOptions(device="cuda:0")).run(jobs)}
    found = []
    for job in jobs:
        record = records[job.key]
        assert isinstance(record.verdict, Agrees), record.verdict
        assert record.measurement is not None
        found.append((record, timing(record.measurement)))
    return found


def test_small_kernels_are_timed_on_the_device_and_by_the_call() -> None:
    for record, times in judge(Job(SMALL, native(SMALL)), Job(INPLACE, native(INPLACE))):
        assert record.measurement is not None
        assert record.measurement.uncaptured is None, record.measurement.uncaptured
        assert times.clocked == "device"
        assert times.speedup is not None, times.unresolved
        assert times.speedup.judged_low is not None
        assert times.speedup.outcome == "same"
        assert 500 < times.reference_ns < 5000
        assert times.reference_call_ns is not None
        assert times.reference_call_ns > times.reference_ns


def test_warm_caches_are_at_least_as_fast() -> None:
    (_, cold), (_, warm) = judge(Job(SMALL, native(SMALL)), Job(SMALL, native(SMALL), cache="warm"))
    assert warm.clocked == "device"
    assert warm.reference_ns < 1.05 * cold.reference_ns


def test_who_cannot_be_captured_is_held_against_the_reference_on_the_device() -> None:
    ((record, times),) = judge(Job(SMALL, source(SMALL, SYNCHRONISES)))
    assert record.measurement is not None
    assert (record.measurement.uncaptured or "").startswith("the candidate")
    assert times.clocked == "calls against device"
    assert times.speedup is None or times.speedup.ratio < 1


def test_a_kernel_that_is_faster_is_called_so_by_chained_calls() -> None:
    (fixture,) = (each for each in read_corpus() if each.id == "gpu_h_faster_logsumexp")
    case = CASES["logsumexp_cuda_timed"]
    ((record, times),) = judge(Job(case, source(case, fixture.text)))
    assert record.measurement is not None
    assert times.speedup is not None, times.unresolved
    assert (times.speedup.outcome, times.speedup.one_at_a_time) == ("faster", "confirmed")
    assert any(block.way == "chained" for block in record.measurement.blocks)
