"""A thousand rollouts at once on the CPU, by the benchmark's own program."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
KINDS = {"right: agrees", "wrong: disagrees", "broken: crashed"}


def rollouts(folder: Path, *arguments: str) -> dict[str, Any]:
    told = folder / "rollouts.json"
    command = (sys.executable, "benchmarks/rollouts.py", "--device", "cpu", "--json", str(told), *arguments)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=3000, check=False)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    found: dict[str, Any] = json.loads(told.read_text())
    return found


def test_no_rollout_sees_anothers_kernel_and_each_gets_the_verdict_of_its_own(tmp_path: Path) -> None:
    found = rollouts(tmp_path, "--rollouts", "12", "--judges", "2", "--check-only", "--largest", "1")
    assert found["rewards"] == 12
    assert found["verdicts"].keys() == KINDS
    assert not found["faults"]


@pytest.mark.slow
def test_of_a_thousand_rollouts_none_sees_another_the_queue_is_bounded_and_memory_stays(tmp_path: Path) -> None:
    found = rollouts(tmp_path, "--rollouts", "1000", "--judges", "2", "--check-only", "--largest", "1")
    print(found)
    assert found["rewards"] == 1000
    assert found["verdicts"].keys() == KINDS
    assert found["most_in_flight"] <= found["queue"] < 1000
    assert found["memory_growth"] is not None
    assert found["memory_growth"] <= 1.25
    assert not found["faults"]
