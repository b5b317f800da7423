"""benchmarks/builtin_kernels.py: its tables are right, and parts that fail or take too long do not stop it. No GPU."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "builtin_kernels.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("builtin_kernels_benchmark", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def row(implementation: str, time_ms: float, share: float = 50.0, *, dim: int = 64, **more: Any) -> dict[str, Any]:
    return {
        "operation": "MSE", "implementation": implementation, "batch_size": 128, "sequence_length": 2048,
        "tensor_dimension": dim, "dtype": "float32", "mode": "fwd", "time_ms": time_ms, "gpu_efficiency": share,
        "interval_low_ms": 0.99 * time_ms, "interval_high_ms": 1.01 * time_ms, **more,
    }  # fmt: skip


def part(name: str, *rows: dict[str, Any]) -> dict[str, Any]:
    settings = {"part": name, "command": "torchstone sweep", "ending": "complete", "device": "H200"}
    return {**settings, "points": 2, "seconds": 10.0, "measuring_seconds": 4.0, "rows": rows, "skipped": ()}


def test_ratios_leave_out_points_below_5_microseconds_and_points_that_one_side_lacks(script: ModuleType) -> None:
    rows = [
        row("PyTorch", 0.02), row("CUDA", 0.01),
        row("PyTorch", 0.08, dim=128), row("CUDA", 0.01, dim=128),
        row("PyTorch", 0.0049, dim=8), row("CUDA", 0.0001, dim=8),
        row("PyTorch", 1.0, dim=512),
    ]  # fmt: skip
    assert "| MSE | 4.00 (2) |" in script.page({"grid": part("grid", *rows)})


def test_shares_are_of_large_inputs_alone(script: ModuleType) -> None:
    rows = [row("CUDA", 0.1, 91.4), row("CUDA", 0.2, 97.2, dim=128), row("CUDA", 0.01, 12.0, dim=32)]
    shown = script.page({"grid": part("grid", *rows)})
    assert "| MSE | 91 to 97 |" in shown
    assert "| MSE, CUDA | 91 | 97 |" in shown


def test_slower_than_compile_means_beyond_both_intervals(script: ModuleType) -> None:
    rows = [
        row("Compile", 0.100), row("CUDA", 0.101),
        row("Compile", 0.100, dim=128), row("CUDA", 0.103, dim=128),
        row("Compile", 0.100, dim=256), row("CUDA", 0.090, dim=256),
    ]  # fmt: skip
    assert "| MSE, CUDA | 3 | 1 | 1 |" in script.page({"compile": part("compile", *rows)})


def test_a_page_without_any_part_is_made(script: ModuleType) -> None:
    assert script.page({}).startswith("Device: none.")


def test_axes_are_replaced_for_a_try(script: ModuleType) -> None:
    assert list(script._without_axes(("--batch", "1", "--mode", "bwd", "--dim", "8", "--no-judge"))) == [
        "--mode", "bwd", "--no-judge",
    ]  # fmt: skip


def run_script(*options: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, str(SCRIPT), *options]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


def test_a_part_that_cannot_run_and_one_at_its_limit_leave_a_page(tmp_path: Path) -> None:
    """`both` is interrupted at once; `backward` asks for a device that does not exist."""
    given = ["--tiny", "--output", str(tmp_path), "--parts", "both,backward", "--limit", "both=0"]
    done = run_script(*given, "--device", "nonsense")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "failed: both, backward" in done.stdout
    assert json.loads((tmp_path / "backward.json").read_text())["ending"] == "ended with exit code 2"
    assert "0 times" in (tmp_path / "kernels-measured.md").read_text()


@pytest.mark.slow
def test_every_part_runs_without_a_gpu(tmp_path: Path) -> None:
    given = ["--tiny", "--output", str(tmp_path), "--device", "cpu", "--parts", "grid,backward,both"]
    done = run_script(*given)
    assert done.returncode == 0, done.stdout + done.stderr
    expected = {"kernels-measured.md"}
    for name in ("grid", "backward", "both"):
        found = json.loads((tmp_path / f"{name}.json").read_text())
        assert found["ending"] == "complete"
        assert len(found["rows"]) == 5 * 2
        assert json.loads((tmp_path / f"{name}.rows.json").read_text()) == found["rows"]
        expected |= {f"{name}.json", f"{name}.rows.json"}
    assert "## Forward and backward together" in (tmp_path / "kernels-measured.md").read_text()
    assert {path.name for path in tmp_path.iterdir()} == expected
