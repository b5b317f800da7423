"""``torchstone profile`` on a real device: ``make test ARGS="-m gpu tests/gpu/test_gpu_profile.py"``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from torchstone.profiling.external_tools import find_tool

pytestmark = pytest.mark.gpu

SOURCE = Path(__file__).parents[2] / "src"
TRITON = """
import torch, triton, triton.language as tl

@triton.jit
def triton_relu(x, y, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    tl.store(y + offsets, tl.maximum(tl.load(x + offsets, mask=inside), 0.0), mask=inside)

def relu(x):
    y = torch.empty_like(x)
    triton_relu[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y
"""


def profiled(folder: Path, *arguments: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any], Path]:
    """The command's end, its profile, and the folder of it."""
    paths = os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH", "")]))
    command = [sys.executable, "-m", "torchstone", "profile", *arguments, "--device", "cuda:0", "--json"]
    environment = {**os.environ, "PYTHONPATH": paths}
    finished = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=170)
    assert finished.stdout, finished.stderr
    told = json.loads(finished.stdout)
    return finished, told["profile"], folder / told["profile_folder"]


def kernel(profile: dict[str, Any], profiler: str, name: str) -> dict[str, Any]:
    (result,) = [result for result in profile["results"] if result["profiler"] == profiler]
    assert result["status"] == "profiled", result
    found = [kernel for kernel in result["kernels"] if name in kernel["name"]]
    assert found, result["kernels"]
    return found[0]


@pytest.fixture
def triton_file(tmp_path: Path) -> str:
    (tmp_path / "relu.py").write_text(TRITON)
    return "relu.py"


def test_torch_sees_the_device_kernel_from_inside_the_sandbox(tmp_path: Path, triton_file: str) -> None:
    finished, profile, folder = profiled(tmp_path, triton_file, "--calls", "4")
    assert finished.returncode == 0, finished.stderr
    seen = kernel(profile, "torch", "triton_relu")
    assert (seen["kind"], seen["launches"], seen["grid_size"]) == ("kernel", 4, 512)
    assert seen["profiled_ns"] > 0
    assert seen["registers_per_thread"] > 0
    assert profile["results"][0]["sandboxed"]
    trace = json.loads((folder / "torch_trace.json").read_bytes())
    assert sum(event.get("cat") == "kernel" for event in trace["traceEvents"]) == 4


@pytest.mark.skipif(find_tool("ncu") is None, reason="there is no ncu")
def test_ncu_tells_throughput_and_occupancy_of_each_kernel(tmp_path: Path, triton_file: str) -> None:
    finished, profile, folder = profiled(tmp_path, triton_file, "--with", "ncu", "--calls", "2")
    (result,) = profile["results"]
    if result["status"] == "unavailable" and "RestrictProfiling" in result["notice"]:
        pytest.skip(result["notice"])
    assert finished.returncode == 0, result
    assert "outside the sandbox" in finished.stderr
    assert (folder / "ncu.ncu-rep").stat().st_size > 1000
    seen = kernel(profile, "ncu", "triton_relu")
    assert (seen["launches"], seen["grid_size"]) == (2, 512), "warming up is not profiled"
    assert 500 < seen["profiled_ns"] / seen["launches"] < 1_000_000
    for share in ("sm_percent", "memory_percent", "occupancy_percent", "l2_hit_percent"):
        assert 0 <= seen[share] <= 110, share
    assert seen["registers_per_thread"] > 0
    assert seen["block_size"] >= 32


@pytest.mark.skipif(find_tool("nsys") is None, reason="there is no nsys")
def test_nsys_keeps_a_timeline(tmp_path: Path, triton_file: str) -> None:
    finished, profile, folder = profiled(tmp_path, triton_file, "--with", "nsys", "--calls", "3")
    assert finished.returncode == 0, profile["results"]
    assert (folder / "nsys.nsys-rep").stat().st_size > 1000
    assert kernel(profile, "nsys", "triton_relu")["launches"] == 3


def test_an_absent_tool_costs_a_notice_and_the_rest_is_done(tmp_path: Path) -> None:
    if find_tool("nsys") is not None:
        pytest.skip("there is an nsys")
    finished, profile, _ = profiled(tmp_path, "aten.relu.default", "--with", "nsys,torch")
    assert finished.returncode == 0, finished.stderr
    assert [result["status"] for result in profile["results"]] == ["absent", "profiled"]
    assert finished.stderr.startswith("notice: nsys: not on this machine.")
