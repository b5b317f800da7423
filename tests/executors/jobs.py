"""Jobs for the tests of executors: kernels of relu that are right, wrong, or fail in some way."""

from __future__ import annotations

from torchstone.schema import (
    Case,
    Deadlines,
    Implementation,
    Job,
    Normal,
    SourceFile,
    SourceFiles,
    Tensor,
)

RELU = Case("test", "aten.relu.default", (Tensor((5, 7), "float32", Normal()),))
SHORT = Deadlines(load_seconds=20.0, compile_seconds=20.0, check_seconds=20.0)

BODIES = {
    "right": "def kernel(x): return x.clamp(min=0)",
    "wrong": "def kernel(x): return x + 1",
    "raises": "def kernel(x): raise ValueError('no')",
    "crashes": "import os\ndef kernel(x): os.kill(os.getpid(), 11)",
    "hangs": "import time\ndef kernel(x):\n    while True: time.sleep(1)",
}


def job(kind: str, number: int = 0, *, before: str = "", deadlines: Deadlines | None = None) -> Job:
    """A job whose kernel is of this kind; the number makes it another candidate."""
    text = f"# {number}\n{before}\n{BODIES[kind]}"
    kernel = Implementation("test", RELU.operator, SourceFiles((SourceFile("kernel.py", text),), "kernel"))
    hurried = Deadlines(load_seconds=20.0, compile_seconds=1.5, check_seconds=1.5) if kind == "hangs" else SHORT
    return Job(RELU, kernel, "quick", deadlines or hurried, measured=False, shapes="stated")
