"""torch's profiler in a real sandboxed worker, on the CPU."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from torchstone.profiling import Subject
from torchstone.profiling.torch_profiler import TorchProfiler
from torchstone.schema import Case, Normal, ProfilerResult, Tensor

MakeSubject = Callable[..., Subject]


NESTED_REPLY = """
import os, struct, time
data = b'{"type": "done", "x": ' + b"[" * 20_000 + b"]" * 20_000 + b"}"
for number in range(3, 64):
    try:
        if "pipe" in os.readlink(f"/proc/self/fd/{number}"):
            os.write(number, struct.pack("<I", len(data)) + data)
    except OSError:
        pass
def kernel(x): return x
"""


def profile(subject: Subject) -> ProfilerResult:
    return TorchProfiler().profile(subject)


def test_a_trace_that_perfetto_opens_is_kept_and_operators_are_counted(subject_of: MakeSubject) -> None:
    subject = subject_of("def kernel(x): return x.clamp(min=0)", calls=4, warmup_calls=2)
    result = profile(subject)
    assert (result.status, result.notice, result.files) == ("profiled", "", ("torch_trace.json",))
    assert result.sandboxed
    assert {layer.name for layer in result.layers} >= {"processes", "files", "seccomp"}
    clamp = next(kernel for kernel in result.kernels if kernel.name == "aten::clamp")
    assert (clamp.kind, clamp.launches) == ("operator", 4), "calls before the marks do not count"
    assert clamp.profiled_ns > 0
    trace = json.loads((subject.folder / "torch_trace.json").read_bytes())
    ranges = [event["name"] for event in trace["traceEvents"] if event.get("cat") == "user_annotation"]
    assert [name for name in ranges if "torchstone" in name] == [f"torchstone: call {index}" for index in range(4)]


def test_an_operator_that_works_in_place_is_profiled(subject_of: MakeSubject) -> None:
    case = Case("test", "aten.relu_.default", (Tensor((8, 8), "float32", Normal()),))
    subject = subject_of("def kernel(x): return x.clamp_(min=0)")
    assert profile(replace(subject, what=replace(subject.kernel, case=case))).status == "profiled"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def kernel(x): raise ValueError('[red]no')", "the kernel failed: ValueError: [red]no"),
        ("import nowhere", "the kernel failed: ModuleNotFoundError"),
        ("def other(x): return x", "defines no function 'kernel'"),
        ("import os\ndef kernel(x): os._exit(3)", "ended its process with exit code 3"),
        ("import os\ndef kernel(x): os.abort()", "died of SIGABRT"),
        (NESTED_REPLY, "wrote to the worker's reply pipe"),
    ],
)
def test_a_kernel_that_fails_is_a_result_in_words(subject_of: MakeSubject, source: str, said: str) -> None:
    subject = subject_of(source)
    result = profile(subject)
    assert result.status == "failed"
    assert said in result.notice
    assert list(subject.folder.iterdir()) == []


def test_a_kernel_that_does_not_end_is_stopped(subject_of: MakeSubject) -> None:
    result = profile(replace(subject_of("import time\ndef kernel(x): time.sleep(3600)"), seconds=2.0))
    assert result.status == "failed"
    assert result.notice == "no answer within 2 s. Allow more with --timeout."


FORGES = """
import os, torch.profiler
class Forged:
    def __init__(self, **_): pass
    def __enter__(self): return self
    def __exit__(self, *_): pass
    def export_chrome_trace(self, path):
        with open(path, "w") as file:
            file.write({text})
torch.profiler.profile = Forged
def kernel(x): return x.clamp(min=0)
"""


def test_a_forged_trace_is_a_failure_not_a_crash(subject_of: MakeSubject) -> None:
    result = profile(subject_of(FORGES.format(text="'[' * 100_000")))
    assert result.status == "failed"
    assert "no trace" in result.notice


@pytest.mark.adversary
def test_a_trace_without_end_is_not_taken(subject_of: MakeSubject) -> None:
    result = profile(subject_of(FORGES.format(text="' ' * (65 << 20)")))
    assert result.status == "failed"
    assert "more than 64 MiB. Profile fewer calls" in result.notice


def test_a_case_that_torch_cannot_do_is_no_fault_of_the_kernel(subject_of: MakeSubject) -> None:
    case = Case("test", "aten.nowhere.default", (Tensor((8, 8), "float32", Normal()),))
    subject = subject_of()
    result = profile(replace(subject, what=replace(subject.kernel, case=case)))
    assert result.status == "unavailable"
    assert "has no operator" in result.notice
