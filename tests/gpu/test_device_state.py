"""What a real device tells of its state and of kernels' code.

``make test ARGS="-m gpu -s tests/gpu/test_device_state.py"`` also prints what it tells and how long asking takes.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from torchstone.executors import ExecutorOptions
from torchstone.executors.local import LocalExecutor
from torchstone.measuring.device_state import DeviceProbe, disturbances
from torchstone.schema import Agrees, Attribution, Case, Implementation, Job, Normal, SourceFile, SourceFiles, Tensor

pytestmark = pytest.mark.gpu

ELEMENTS = 1 << 20
RELU = Case("test", "aten.relu.default", (Tensor((ELEMENTS,), "float32", Normal()),), jitter=False)
TRITON = """
import torch, triton, triton.language as tl

@triton.jit
def relu_kernel(x, y, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    values = tl.load(x + offsets, mask=inside)
    tl.store(y + offsets, tl.where(values < 0.0, 0.0, values), mask=inside)

def kernel(x):
    y = torch.empty_like(x)
    relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024, num_warps=4, num_stages=2)
    return y
"""
WASTEFUL = "def kernel(x):\n    spare = x * 2\n    return (spare * 0.5).clamp(min=0)"


def probe() -> DeviceProbe:
    import torch

    torch.zeros(1, device="cuda")  # the judge has a context, too
    return DeviceProbe("cuda", f"GPU-{torch.cuda.get_device_properties(0).uuid}")


def source(text: str) -> Implementation:
    return Implementation("test", RELU.operator, SourceFiles((SourceFile("kernel.py", text),), "kernel"), "triton")


@pytest.fixture(scope="module")
def attributions() -> list[Attribution]:
    """Of the Triton kernel and of the wasteful one, by one judge."""
    jobs = [Job(RELU, source(text)) for text in (TRITON, WASTEFUL)]
    records = {record.job_key: record for record in LocalExecutor(ExecutorOptions(device="cuda:0")).run(jobs)}
    found = [records[job.key] for job in jobs]
    assert all(isinstance(record.verdict, Agrees) for record in found), [record.verdict for record in found]
    return [record.attribution for record in found if record.attribution is not None]


def microseconds(action: Callable[[], object]) -> float:
    """The median of some; printed by ``-s``."""
    taken = []
    for _ in range(50):
        began = time.perf_counter_ns()
        action()
        taken.append((time.perf_counter_ns() - began) / 1000)
    return statistics.median(taken)


def test_a_device_tells_its_state() -> None:
    state = probe().state()
    print(state)
    assert state.sm_clock_mhz is not None
    assert state.temperature_celsius is not None
    assert state.processes is None or state.processes >= 1


def test_a_glance_is_cheap_and_counters_can_be_had() -> None:
    watched = probe()
    glance = watched.glance([os.getpid()], counters=True)
    full, quick = microseconds(watched.state), microseconds(lambda: watched.glance([os.getpid()]))
    print(glance, f"state {full:.0f} µs, glance {quick:.0f} µs")
    assert glance.slowed or glance.energy_millijoules is not None
    assert quick < 1000  # the aim is 100


def test_heavy_work_draws_energy_and_an_idle_device_is_not_throttled() -> None:
    import torch

    watched = probe()
    torch.cuda.synchronize()
    time.sleep(0.2)
    idle = watched.glance(counters=True)
    time.sleep(0.2)
    rested = watched.glance(counters=True)
    values = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    for _ in range(300):
        values @ values
    torch.cuda.synchronize()
    worked = watched.glance(counters=True)
    print("idle:", disturbances(idle, rested), "heavy:", disturbances(rested, worked))
    assert "hardware thermal" not in disturbances(idle, rested)
    if rested.energy_millijoules is not None and worked.energy_millijoules is not None:
        joules = (worked.energy_millijoules - rested.energy_millijoules) / 1000
        print(f"{joules:.1f} J in {(worked.taken_ns - rested.taken_ns) / 1e9:.2f} s")
        assert joules > 1


def test_another_process_on_the_device_is_counted_and_a_child_of_ours_is_no_other() -> None:
    hold = "import torch, sys; torch.zeros(1, device='cuda'); print('here', flush=True); sys.stdin.read()"
    watched = probe()
    alone = watched.state()
    with subprocess.Popen(
        [sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "here\n"
        together = watched.state()
        child.communicate("")
    print(alone, together)
    if alone.processes is not None and together.processes is not None:
        assert together.processes == alone.processes + 1
        assert together.other_processes == alone.other_processes


def test_a_triton_kernel_tells_its_code(attributions: list[Attribution]) -> None:
    found = attributions[0]
    print(found)
    (code,) = (code for code in found.code if code.name == "relu_kernel")
    assert code.registers_per_thread is not None
    assert code.registers_per_thread > 0
    assert code.spilled_registers == 0
    assert (code.warps, code.stages) == (4, 2)
    assert code.shared_memory_bytes is not None
    assert code.grid == (ELEMENTS // 1024, 1, 1)  # from here on by the profiler
    assert code.block == (128, 1, 1)


def test_peak_memory_is_what_the_kernel_held_at_once(attributions: list[Attribution]) -> None:
    size_bytes = 4 * ELEMENTS
    lean, wasteful = attributions
    assert lean.peak_memory_bytes == size_bytes
    assert lean.reference_peak_memory_bytes == size_bytes
    assert wasteful.peak_memory_bytes == 3 * size_bytes
    print(wasteful.code)
    assert wasteful.code, "the profiler tells of torch's own kernels, too"
