"""``torchstone sweep`` on a real device: ``make test ARGS="-m gpu tests/gpu/test_sweep.py"``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.gpu

SOURCE = Path(__file__).parents[2] / "src"
ALL = {"LayerNorm", "GELU", "Swish", "MSE", "CrossEntropy"}
ILLEGAL = """
import torch

name = "Copy"

def make_inputs(batch_size, sequence_length, tensor_dimension, dtype, device, generator):
    return torch.randn(batch_size, sequence_length, tensor_dimension, dtype=dtype, device=device, generator=generator)

def reference(x):
    return x.clone()

def waits_for_the_device(x):
    return x.clone() if x.sum().item() is not None else x

def reads_outside(x):
    index = torch.full((4,), 1 << 40, device=x.device)
    return x.flatten()[index].sum() + x

implementations = {"Waits": waits_for_the_device, "Illegal": reads_outside}
"""


def sweep(folder: Path, *options: str) -> tuple[int, list[dict[str, Any]], list[dict[str, Any]], str]:
    done = subprocess.run(
        [sys.executable, "-m", "torchstone", "sweep", "--device", "cuda", "--quiet", *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(SOURCE), os.environ.get("PYTHONPATH"))))},
        capture_output=True,
        text=True,
        timeout=540,
        check=False,
    )
    rows, skipped = (
        json.loads((folder / f"benchmark_results{ending}.json").read_text()) for ending in ("", ".skipped")
    )
    return done.returncode, rows, skipped, done.stdout + done.stderr


@pytest.mark.parametrize("mode", ["fwd", "bwd", "fwd+bwd"])
def test_every_implementation_is_timed_in_every_mode(tmp_path: Path, mode: str) -> None:
    grid = ("--batch", "4", "--seq", "128", "--dim", "64,100", "--mode", mode, "--no-judge")
    code, rows, skipped, told = sweep(tmp_path, "--impl", "pytorch,compile,cuda,triton", *grid)
    assert code == 0, told + str(skipped)
    assert not skipped
    assert len(rows) == 5 * 4 * 2
    assert {row["operation"] for row in rows} == ALL
    for row in rows:
        assert 0 < row["interval_low_ms"] <= row["time_ms"] <= row["interval_high_ms"]
        assert row["time_ms"] < 1


def test_the_built_in_kernels_are_judged_at_the_corners(tmp_path: Path) -> None:
    code, rows, skipped, told = sweep(tmp_path, "--batch", "2", "--seq", "64", "--dim", "8,48", "--dtype", "bf16")
    assert code == 0, told + str(skipped)
    assert len(rows) == 5 * 3 * 2
    kept = json.loads((tmp_path / "benchmark_results.journal" / "judged.json").read_text())
    assert len(kept) == 5 * 2 * 2
    assert set(kept.values()) == {""}


def test_time_is_device_time_on_cold_caches(tmp_path: Path) -> None:
    """A pass over 256 MB cannot be faster than memory, and a small one must not be timed out of the cache."""
    _, rows, _, told = sweep(tmp_path, "--impl", "pytorch", "--ops", "gelu", "--batch", "64", "--seq", "1024", "--dim",
                             "16,1024", "--no-judge")  # fmt: skip
    small, large = sorted(rows, key=lambda row: row["tensor_dimension"])
    assert 50 < large["gpu_efficiency"] < 108, told
    assert small["throughput_gbps"] < 1.1 * large["throughput_gbps"], "this one fits the cache, which is cold"
    for row in rows:
        assert (row["interval_high_ms"] - row["interval_low_ms"]) / 2 <= 0.03 * row["time_ms"]


def test_a_point_that_does_not_fit_is_predicted(tmp_path: Path) -> None:
    grid = ("--batch", "1", "--seq", "1024", "--dim", "1024,1073741824")
    code, rows, skipped, told = sweep(tmp_path, "--impl", "pytorch", "--ops", "gelu", "--no-judge", *grid)
    assert code == 0, told
    assert len(rows) == 1
    (row,) = skipped
    assert row["reason"].startswith("does not fit: ")
    assert " GB are needed, " in row["reason"]


def test_an_illegal_access_costs_one_implementation_and_what_cannot_be_captured_is_timed(tmp_path: Path) -> None:
    (tmp_path / "copy_op.py").write_text(ILLEGAL)
    grid = ("--batch", "2", "--seq", "64", "--dim", "64,128")
    code, rows, skipped, told = sweep(tmp_path, "--impl", "pytorch", "--ops", "copy_op.py", *grid)
    assert code == 1, told
    assert sorted({row["implementation"] for row in rows}) == ["PyTorch", "Waits"]
    assert len(rows) == 4
    assert {row["implementation"] for row in skipped} == {"Illegal"}
    assert all(row["reason"].startswith("crashed: ") for row in skipped)
