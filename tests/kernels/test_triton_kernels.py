"""The built-in Triton kernels without a GPU: they agree with torch in the interpreter, and compile without spills."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")
HERE = Path(__file__).parent


def test_every_kernel_agrees_with_torch_in_the_interpreter() -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTEST_ADDOPTS": ""}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(HERE / "triton_in_interpreter.py")]
    outcome = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert outcome.returncode == 0, outcome.stdout[-8000:]
