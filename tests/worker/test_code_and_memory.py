"""What attribution says about memory and code. Launches are played where only a GPU could make them."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from torchstone.protocol.peak_memory import PeakMemory
from torchstone.schema import Attribution, KernelCode
from torchstone.worker.attribution import attribute
from torchstone.worker.kernel_resources import TritonLaunches, code_in, merged, traced_code

MEGABYTE = 1_000_000


def floats(megabytes: int) -> torch.Tensor:
    return torch.empty(megabytes * MEGABYTE // 4)


def test_the_most_that_was_held_at_once_counts() -> None:
    with PeakMemory("cpu") as peak:
        first = floats(3)
        del first
        second, third = floats(2), floats(2)
    del second, third
    assert peak.size_bytes == 4 * MEGABYTE


def test_memory_that_an_operator_needs_inside_counts() -> None:
    values = torch.rand(100_000)
    with PeakMemory("cpu") as peak:
        values.sort()
    assert peak.size_bytes is not None
    assert peak.size_bytes >= 12 * 100_000  # sorted values and their indices


def test_memory_from_before_does_not_count_whether_kept_or_freed() -> None:
    kept, freed = floats(8), floats(8)
    with PeakMemory("cpu") as peak:
        del freed
        fresh = floats(1)
    del kept, fresh
    assert peak.size_bytes == MEGABYTE


@given(st.lists(st.integers(1, 9), max_size=4))
def test_as_much_as_is_held_at_the_end_was_needed(sizes: list[int]) -> None:
    with PeakMemory("cpu") as peak:
        held = [floats(size) for size in sizes]
    assert peak.size_bytes == sum(tensor.nbytes for tensor in held)


def test_a_call_that_fails_leaves_no_watcher_behind() -> None:
    for _ in range(2):  # a second one would refuse to start
        with pytest.raises(ValueError, match="no"), PeakMemory("cpu"):
            raise ValueError("no")


def test_a_device_that_is_not_known_tells_nothing() -> None:
    with PeakMemory("meta") as peak:
        torch.empty(4, device="meta")
    assert peak.size_bytes is None


def test_attribution_tells_the_memory_of_a_call() -> None:
    x = torch.rand(250_000)
    lean = attribute(lambda x: x.clamp(min=0), [x], {}, with_kernels=False)
    wasteful = attribute(lambda x: (x * 2).clamp(min=0) / 2, [x], {}, with_kernels=False)
    assert lean.peak_memory_bytes == MEGABYTE
    assert wasteful.peak_memory_bytes is not None
    assert wasteful.peak_memory_bytes >= 2 * MEGABYTE
    assert lean.reference_peak_memory_bytes is None  # the judge's to say


KERNEL_EVENT = {
    "ph": "X",
    "cat": "kernel",
    "name": "relu_kernel",
    "args": {
        "registers per thread": 32,
        "shared memory": 2048,
        "blocks per SM": 1.5,
        "grid": [98, 2, 1],
        "block": [128, 1, 1],
        "est. achieved occupancy %": 37,
    },
}
LAUNCH = KernelCode("relu_kernel", 32, None, 2048, 4, None, (98, 2, 1), (128, 1, 1), 37)


def trace(*events: Any) -> str:
    return json.dumps({"schemaVersion": 1, "traceEvents": list(events)})


def test_a_trace_tells_registers_shared_memory_and_the_launch() -> None:
    copy = {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD", "args": {"bytes": 8}}
    assert code_in(trace({"ph": "M", "name": "process_name"}, KERNEL_EVENT, copy, KERNEL_EVENT)) == (LAUNCH,)


def test_a_kernel_of_which_a_trace_tells_nothing_is_named() -> None:
    assert code_in(trace({"cat": "kernel", "name": "k"})) == (KernelCode("k"),)


@given(st.recursive(st.none() | st.integers() | st.floats() | st.text(), lambda x: st.lists(x, max_size=3)))
@example([5283228, 5284493, 5285755])  # each fits, their product does not
def test_odd_facts_in_a_trace_are_left_out(odd: Any) -> None:
    facts = dict.fromkeys(KERNEL_EVENT["args"], odd)
    found = code_in(trace({**KERNEL_EVENT, "args": facts}))
    for code in found:  # what comes out can be sent: the judge would take anything else for a forgery
        assert msgspec.json.decode(msgspec.json.encode(code), type=KernelCode) == code


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"traceEvents": 3}', '{"traceEvents": [3]}'])
def test_what_is_no_trace_tells_nothing(text: str) -> None:
    assert code_in(text) == ()


def test_a_real_profile_can_be_read() -> None:
    """On the CPU it has no kernels, but the file is written and parsed."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        torch.zeros(3).add_(1)
    assert traced_code(profile) == ()


def test_a_profile_that_cannot_be_written_tells_nothing() -> None:
    def refuse(path: str) -> None:
        raise OSError("no space left on device")

    assert traced_code(SimpleNamespace(export_chrome_trace=refuse)) == ()


def test_what_triton_alone_knows_is_added_to_the_launch() -> None:
    other = KernelCode("relu_kernel", registers_per_thread=64, spilled_registers=9, warps=8, stages=5)
    own = KernelCode("relu_kernel", registers_per_thread=32, spilled_registers=2, warps=4, stages=3)
    unseen = KernelCode("second_kernel", registers_per_thread=16)
    (launch, rest) = merged([LAUNCH], [other, own, unseen], most=9)
    assert launch == msgspec.structs.replace(LAUNCH, spilled_registers=2, stages=3)
    assert rest == unseen
    assert merged([LAUNCH], [], most=9) == (LAUNCH,)
    assert merged([LAUNCH], [unseen], most=1) == (LAUNCH,)


def test_without_a_launch_nothing_is_told() -> None:
    with TritonLaunches() as launches:
        torch.zeros(1)
    assert launches.code() == ()


TRITON_SOURCE = """
import triton
import triton.language as tl

@triton.jit
def doubled(x, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(x + offsets, tl.load(x + offsets) * 2)
"""


@pytest.fixture
def compiled(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A kernel that Triton really compiled, for a device that need not be here."""
    triton = pytest.importorskip("triton")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    file = tmp_path / "doubling.py"
    file.write_text(TRITON_SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    import doubling  # type: ignore[import-not-found]

    source = triton.compiler.ASTSource(doubling.doubled, {"x": "*fp32", "BLOCK": "constexpr"}, {"BLOCK": 128})
    target = triton.backends.compiler.GPUTarget("cuda", 90, 32)
    return triton.compile(source, target=target, options={"num_warps": 2, "num_stages": 3})


def test_the_code_of_a_launched_triton_kernel_is_told(compiled: Any) -> None:
    import triton

    compiled.function, compiled.n_regs, compiled.n_spills = 4711, 40, 6  # as loading it onto a device would
    hooks = triton.knobs.runtime.launch_enter_hook
    launch = triton.compiler.LazyDict({"name": compiled.name, "function": 4711, "stream": 0})
    with TritonLaunches() as launches:
        hooks(launch)
    assert launches._note not in hooks.calls
    (code,) = launches.code()
    assert code.name == "doubled"
    assert (code.registers_per_thread, code.spilled_registers) == (40, 6)
    assert (code.shared_memory_bytes, code.warps, code.stages) == (0, 2, 3)


def test_a_launch_of_another_version_of_triton_tells_nothing(compiled: Any) -> None:
    import triton

    with TritonLaunches() as launches:
        triton.knobs.runtime.launch_enter_hook(object())
    assert launches.code() == ()


def test_attributions_of_old_records_can_still_be_read() -> None:
    old = b'{"operators":{},"kernels":[],"threads_started":0,"streams":0,"note":""}'
    assert msgspec.json.decode(old, type=Attribution) == Attribution({})
