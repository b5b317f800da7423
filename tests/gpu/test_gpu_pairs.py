"""``torchstone pairs`` on a real device, profiling on: ``make test ARGS="-m gpu tests/gpu/test_gpu_pairs.py"``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from torchstone.profiling.external_tools import find_tool

pytestmark = pytest.mark.gpu

SOURCE = Path(__file__).parents[2] / "src"
WORK = """
import torch
from torchstone.harness import BaseBenchmark

class Work(BaseBenchmark):
    def setup(self):
        self.x = torch.rand(1 << 25, device=self.device)
        torch.cuda.synchronize()

    def benchmark_fn(self):
        for _ in range({steps}):
            self.output = self.x * 2.0
"""


class Ran(NamedTuple):
    stderr: str
    folder: Path
    pair: dict[str, Any]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """One pair, whose optimized side makes half as many passes over the same memory."""
    root = tmp_path_factory.mktemp("gpu") / "tree"
    (root / "ch1").mkdir(parents=True)
    (root / "ch1" / "baseline_passes.py").write_text(WORK.format(steps=8))
    (root / "ch1" / "optimized_passes.py").write_text(WORK.format(steps=4))
    paths = os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run(
        [sys.executable, "-m", "torchstone", "pairs", "run", str(root), "--device", "cuda:0", "--run-id", "x"],
        cwd=root.parent,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=570,
        check=False,
    )
    assert done.returncode == 0, (done.stderr, done.stdout)
    folder = root.parent / "artifacts" / "x"
    (record,) = json.loads((folder / "benchmark_test_results.json").read_bytes())["pairs"]
    return Ran(done.stderr, folder, record["comparison"])


def test_half_the_work_is_twice_as_fast(ran: Ran) -> None:
    assert ran.pair["speedup"] == pytest.approx(2.0, rel=0.03)
    assert ran.pair["baseline"]["clock"] == "events"


def test_torch_s_trace_gives_the_kernel_time_of_a_call(ran: Ran) -> None:
    for side, kernels in (("baseline", 8), ("optimized", 4)):
        result = ran.pair[side]
        metrics = result["profiler_metrics"]
        assert metrics["profilers"]["torch"] == "profiled"
        assert metrics["kernel_time_ms"] == pytest.approx(result["timing"]["median_ms"], rel=0.3)
        events = json.loads((ran.folder / result["artifacts"]["torch"]).read_bytes())["traceEvents"]
        assert sum(event.get("cat") == "kernel" for event in events) == 3 * kernels, "warming up is not in it"
        assert result["watchdog"]["profiling"]["status"] == "completed", result["notes"]


@pytest.mark.skipif(find_tool("ncu") is None, reason="there is no ncu")
def test_ncu_gives_throughput_and_occupancy(ran: Ran) -> None:
    for side in ("baseline", "optimized"):
        result = ran.pair[side]
        metrics = result["profiler_metrics"]
        if "RestrictProfiling" in metrics["profilers"]["ncu"]:
            pytest.skip(metrics["profilers"]["ncu"])
        assert metrics["profilers"]["ncu"] == "profiled", result["notes"]
        assert (ran.folder / result["artifacts"]["ncu"]).stat().st_size > 1000
        assert metrics["memory_throughput_pct"] > 50, "a pass over 128 MB is bound by memory"
        assert 0 < metrics["sm_throughput_pct"] <= 110
        assert 10 < metrics["occupancy_pct"] <= 110


@pytest.mark.skipif(find_tool("nsys") is not None, reason="there is an nsys")
def test_a_missing_nsys_is_one_notice(ran: Ran) -> None:
    assert ran.stderr.count("profiling with nsys: not on this machine.") == 1
    assert ran.pair["baseline"]["profiler_metrics"]["profilers"]["nsys"].startswith("absent")


@pytest.mark.skipif(find_tool("nsys") is None, reason="there is no nsys")
def test_nsys_keeps_a_timeline(ran: Ran) -> None:
    result = ran.pair["baseline"]
    assert result["profiler_metrics"]["profilers"]["nsys"] == "profiled", result["notes"]
    assert (ran.folder / result["artifacts"]["nsys"]).stat().st_size > 1000
