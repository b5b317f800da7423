"""Memory for results that are timed lies ready: providing its pages is on nobody's clock."""

from __future__ import annotations

import subprocess
import sys

_COUNT_FAULTS = """
import resource, sys
import torch
from torchstone.isolation import linux_calls
from torchstone.protocol.tensor_places import MOST_KEPT, Output
from torchstone.worker.dirty_memory import reserve_result_memory

linux_calls.keep_freed_memory()
ready, calls, elements = sys.argv[1] == "ready", 8, 1 << 18
if ready:
    reserve_result_memory([Output("float32", (elements,))], calls)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
results = [torch.full((elements,), 1.0) for _ in range(calls + MOST_KEPT)]
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    command = [sys.executable, "-c", _COUNT_FAULTS, how]
    return int(subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout)


def test_results_for_which_memory_lies_ready_cost_hardly_any_pages() -> None:
    assert faults("fresh") >= 18 * 256, "all but what happened to be there"
    assert faults("ready") <= 256
