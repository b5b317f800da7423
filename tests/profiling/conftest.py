"""Subjects and fake tools for the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from faking import RELU, FakeTool

from torchstone.executors.devices import Device
from torchstone.profiling import KernelOnCase, Subject
from torchstone.schema import Implementation, SourceFile, SourceFiles


@pytest.fixture
def fake_tool(tmp_path: Path) -> Callable[..., FakeTool]:
    def make(**what: str) -> FakeTool:
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        return FakeTool(folder, **what)

    return make


@pytest.fixture
def subject_of(tmp_path: Path) -> Callable[..., Subject]:
    """A subject on the CPU whose kernel has this text."""

    def make(source: str = "def kernel(x): return x.clamp(min=0)", **settings: object) -> Subject:
        folder = tmp_path / "profile"
        folder.mkdir(exist_ok=True)
        origin = SourceFiles((SourceFile("kernel.py", source),), "kernel")
        implementation = Implementation("test", RELU.operator, origin)
        return Subject(KernelOnCase(RELU, implementation), Device("cpu", "cpu", "cpu"), folder, seconds=60, **settings)  # type: ignore[arg-type]

    return make
