"""Inputs and bounds of 400 cases are those on record: a change of shape changes no value that a kernel meets."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from judging import input_digests
from torchstone.judging.plans import magnitudes
from torchstone.schema import Case, Normal, Tensor

TOTAL = 400
LIBRARIES_COMPUTE = ("aten._linalg_", "aten.convolution", "aten._scaled_dot_product_")
"""Operators whose bounds hold what a library made of them that has its own code for each CPU."""


@pytest.fixture(scope="module")
def lines() -> list[str]:
    """In a process of its own: torch chooses its kernels when it is imported."""
    command = [sys.executable, "-m", "judging.input_digests"]
    done = subprocess.run(
        command, env=input_digests.environment(), capture_output=True, text=True, timeout=300, check=True
    )
    return done.stdout.splitlines()


def test_what_is_drawn_planted_varied_and_bounded_is_as_recorded(lines: list[str]) -> None:
    if os.environ.get("TORCHSTONE_WRITE_GOLDEN"):
        input_digests.DIGESTS.write_text("\n".join(lines) + "\n")
    recorded = input_digests.DIGESTS.read_text().splitlines()
    if recorded[0] != input_digests.made_with():
        pytest.skip(f"recorded with {recorded[0]}, this is {input_digests.made_with()}")
    assert len(recorded) == len(lines) == TOTAL + 1
    pairs = zip(map(comparable, lines), map(comparable, recorded), strict=True)
    assert [line for line, want in pairs if line != want] == []


def comparable(line: str) -> str:
    """Of a line, what is the same on every CPU."""
    return line.partition(" bounds=")[0] if any(f" {name}" in line for name in LIBRARIES_COMPUTE) else line


def test_few_bounds_are_left_to_libraries(lines: list[str]) -> None:
    assert 1 <= sum(comparable(line) != line for line in lines) <= 20


def test_a_change_of_one_plan_changes_the_digests(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case("test", "aten.relu.default", (Tensor((64,), "float32", Normal()),), jitter=False)
    before = input_digests.digests(case, 7)
    assert input_digests.digests(case, 7) == before
    monkeypatch.setattr(magnitudes, "LARGE", (90.0, 100.5))
    after = input_digests.digests(case, 7)
    assert {name for name in before if before[name] != after[name]} == {"planted", "scheduled"}
