"""Rollouts with Triton kernels on a GPU, and the spread of one kernel's reward."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).parents[2]


def rollouts(folder: Path, *arguments: str) -> dict[str, Any]:
    told = folder / "rollouts.json"
    command = (sys.executable, "benchmarks/rollouts.py", "--device", "cuda", "--json", str(told), *arguments)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    found: dict[str, Any] = json.loads(told.read_text())
    return found


def test_rollouts_with_triton_kernels_get_the_verdicts_of_their_own_kernels(tmp_path: Path) -> None:
    found = rollouts(tmp_path, "--rollouts", "60")
    assert found["rewards"] == 60
    assert not found["faults"]


def test_the_reward_of_one_kernel_varies_by_at_most_one_and_a_half_percent(tmp_path: Path) -> None:
    found = rollouts(tmp_path, "--repeat", "50", "--judges", "1")
    assert found["repeats"] == 50
    assert found["reward_deviation_share"] <= 0.015


def test_without_cuda_ipc_rollouts_have_the_same_verdicts(tmp_path: Path) -> None:
    found = rollouts(tmp_path, "--rollouts", "12", "--judges", "1", "--results", "copied")
    assert found["results"] == "copied"
    assert sorted(found["verdicts"]) == ["broken: crashed", "right: agrees", "wrong: disagrees"]
