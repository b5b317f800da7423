"""On a real device: a candidate that fills its memory is blamed for what the reference lacks."""

from __future__ import annotations

import pytest

import torchstone
from torchstone.api import as_implementation
from torchstone.executors import ExecutorOptions
from torchstone.executors.local import LocalExecutor
from torchstone.schema import Job, Limits, explain, verdict_name

pytestmark = pytest.mark.gpu
RELU = "aten.relu.default"
CASE = torchstone.Case("tests", RELU, (torchstone.Tensor((8192, 8192), "float32", torchstone.Normal()),))
GREEDY = """
import torch
held = []
def kernel(x):
    if not held:
        torch.cuda.empty_cache()
        free = torch.cuda.mem_get_info()[0]
        result = x.clamp(min=0)
        held.append(torch.empty(free - (768 << 20), dtype=torch.uint8, device=x.device))
        return result
    return x.clamp(min=0)
"""


def test_a_kernel_that_fills_the_device_crashes_for_memory() -> None:
    job = Job(CASE, as_implementation(GREEDY, RELU, "kernel"), "quick", measured=False)
    (record,) = LocalExecutor(ExecutorOptions("cuda", "best", Limits(), 1, "tests")).run([job])
    assert verdict_name(record.verdict) == "crashed", explain(record.verdict)
    assert getattr(record.verdict, "kind", None) == "memory"
