"""The built-in Triton kernels without a GPU: they agree with torch in the interpreter, and compile without spills."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from torchstone.kernels import operators

pytest.importorskip("triton")
HERE = Path(__file__).parent


def test_every_kernel_agrees_with_torch_in_the_interpreter() -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTEST_ADDOPTS": ""}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(HERE / "triton_in_interpreter.py")]
    outcome = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert outcome.returncode == 0, outcome.stdout[-8000:]


def resources(*options: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "torchstone.kernels.resources", "--impl", "triton", *options]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)


def require_no_spills(told: subprocess.CompletedProcess[str], *architectures: str) -> None:
    assert told.returncode == 0, told.stdout + told.stderr
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in told.stdout.splitlines() if "sm_" in line]
    for architecture in architectures:
        of_this = [row for row in rows if row[1] == architecture]
        served = {row[0].removeprefix("triton ").partition(":")[0] for row in of_this}
        assert served == {*(name.split(".")[1] for name in operators("triton")), "layer_norm_gelu"}
        assert all(0 < int(row[2]) <= 255 and row[3] == "0" for row in of_this)


def test_every_kernel_is_compiled_for_an_h200_without_spills() -> None:
    require_no_spills(resources("--architecture", "90"), "sm_90")


@pytest.mark.slow
def test_every_kernel_is_compiled_for_three_architectures_without_spills() -> None:
    require_no_spills(resources(), "sm_80", "sm_90", "sm_100")
