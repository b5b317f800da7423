"""Who is fast must not have been there before its reference was timed: real judges, real workers."""

from __future__ import annotations

import pytest

from torchstone.executors.base import ExecutorOptions
from torchstone.executors.local import LocalExecutor
from torchstone.measuring import timing
from torchstone.schema import Agrees, Case, Implementation, Job, Normal, Scalar, SourceFile, SourceFiles, Tensor

pytestmark = [pytest.mark.adversary, pytest.mark.slow]

KERNEL = """\
import torch

def kernel(x, exponent):
    if x.shape[0] == 128:
        for _ in range(3):  # slower than torch, for sure
            found = torch.pow(x, exponent)
        return found
    square = x * x
    return square * square
"""


def test_a_candidate_that_was_slow_on_one_case_comes_again_for_its_speed_on_the_next() -> None:
    source = SourceFiles((SourceFile("power.py", KERNEL),), "kernel", "test")
    implementation = Implementation("test", "aten.pow.Tensor_Scalar", source)
    jobs = [
        Job(
            Case("tests", "aten.pow.Tensor_Scalar", (Tensor((rows, 512), "float32", Normal()), Scalar(4.0)),
                 timed=True, jitter=False),
            implementation,
            "quick",
        )
        for rows in (128, 129)
    ]  # fmt: skip
    order = {job.key: place for place, job in enumerate(jobs)}
    records = LocalExecutor(ExecutorOptions(device="cpu")).run(jobs)
    slow, fast = sorted(records, key=lambda record: order[record.job_key])
    assert isinstance(slow.verdict, Agrees)
    assert isinstance(fast.verdict, Agrees)
    assert fast.measurement is not None
    if fast.attempts == 1 and timing(fast.measurement).speedup is None:
        pytest.skip("on this machine no speed was seen that could be confirmed")
    assert (slow.attempts, fast.attempts) == (1, 2)
    ways = {block.way for block in fast.measurement.blocks}
    assert "beforehand" in ways or fast.measurement.never_alone
