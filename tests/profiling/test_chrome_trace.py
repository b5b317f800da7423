"""Traces of torch's profiler become kernels; hostile ones become an error."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from torchstone.profiling.chrome_trace import NotATraceError, kernels_of
from torchstone.profiling.render import kernel_table, render
from torchstone.schema import Case, Implementation, ImportPath, Normal, Profile, ProfilerResult, Tensor


def event(name: str, cat: str, ts: float, dur: float, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": args}


def trace(*events: dict[str, Any]) -> bytes:
    return json.dumps({"schemaVersion": 1, "traceEvents": [{"ph": "M", "name": "process_name"}, *events]}).encode()


def test_operators_have_their_own_time_without_what_they_call() -> None:
    outer, inner = event("aten::relu", "cpu_op", 0.0, 10.0), event("aten::clamp_min", "cpu_op", 1.0, 8.0)
    leaf, later = event("aten::empty", "cpu_op", 2.0, 1.0), event("aten::empty", "cpu_op", 20.0, 3.0)
    kernels = {kernel.name: kernel for kernel in kernels_of(trace(later, inner, leaf, outer))}
    assert {name: kernel.profiled_ns for name, kernel in kernels.items()} == {
        "aten::relu": 2000,
        "aten::clamp_min": 7000,
        "aten::empty": 4000,
    }
    assert kernels["aten::empty"].launches == 2


def test_device_kernels_hide_the_operators_that_launched_them() -> None:
    shape = {"grid": [1024, 2, 1], "block": [128, 1, 1], "registers per thread": 32, "est. achieved occupancy %": 50}
    kernels = kernels_of(
        trace(
            event("aten::relu", "cpu_op", 0.0, 10.0),
            event("relu_kernel", "kernel", 5.0, 2.5, **shape),
            event("relu_kernel", "kernel", 9.0, 2.5, **shape),
            event("Memset (Device)", "gpu_memset", 12.0, 1.0),
            event("cudaLaunchKernel", "cuda_runtime", 1.0, 1.0),
        )
    )
    kernel, copy = sorted(kernels, key=lambda found: -found.profiled_ns)
    assert (kernel.kind, kernel.launches, kernel.profiled_ns) == ("kernel", 2, 5000)
    assert (kernel.grid_size, kernel.block_size, kernel.registers_per_thread) == (2048, 128, 32)
    assert kernel.occupancy_percent == 50
    assert (copy.kind, copy.name) == ("copy", "Memset (Device)")


NO_TRACES = (
    *(b"", b"\0\0", b"[]", b'{"traceEvents": 3}'),
    *(b'{"traceEvents": [{"name": "\xff"}]}', b'{"x": ' + b"[" * 10_000 + b"]" * 10_000 + b', "traceEvents": []}'),
    *(b'{"traceEvents": [{"name": 7}]}', b'{"traceEvents": [{"dur": NaN}]}'),
)


@pytest.mark.parametrize("odd", NO_TRACES, ids=range(len(NO_TRACES)))
def test_what_is_no_trace_is_said_to_be_none(odd: bytes) -> None:
    with pytest.raises(NotATraceError):
        kernels_of(odd)


def test_absurd_details_of_an_event_are_left_out() -> None:
    details = {"grid": ["x"], "block": [1 << 40], "registers per thread": -1, "est. achieved occupancy %": 10**400}
    absurd = event("k" * 1000, "kernel", 0.0, 1.0, **details)
    (kernel,) = kernels_of(trace(absurd, event("long", "kernel", 0.0, 1e300), event("back", "kernel", 0.0, -5.0)))
    assert len(kernel.name) == 300
    assert kernel.grid_size is kernel.block_size is kernel.registers_per_thread is kernel.occupancy_percent is None


def test_names_of_kernels_are_text_whatever_they_contain(capsys: pytest.CaptureFixture[str]) -> None:
    kernels = tuple(kernels_of(trace(event("[red]evil[/] \x1b[31m|", "kernel", 0.0, 1.0))))
    table = kernel_table(ProfilerResult("torch", "profiled", kernels=kernels), 1, Console(width=200))
    Console(width=200).print(table)
    out = capsys.readouterr().out
    assert "[red]evil[/] \\x1b[31m|" in out


def test_a_terminal_gets_no_lines_of_blanks() -> None:
    kernels = tuple(kernels_of(trace(event("relu", "kernel", 0.0, 1.0))))
    operator = "aten.relu.default"
    case = Case("smoke", operator, (Tensor((2,), "float32", Normal()),))
    kernel = Implementation("aten", operator, ImportPath("torch", operator)).reference
    result = ProfilerResult("torch", "profiled", kernels=kernels)
    stream = io.StringIO()
    console = Console(file=stream, width=80, force_terminal=True, no_color=True)
    render(Profile(case, kernel, "cpu", 1, 0, 1, "best", (result,), "", 1, 2), Path("here"), console)
    lines = stream.getvalue().splitlines()
    assert any("relu" in line and "100.0" in line for line in lines)
    assert all(line == line.rstrip() for line in lines if not line.strip())
