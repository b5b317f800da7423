"""The benchmark of what the guards cost switches off what there is: names that it patches change with the judge."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

from torchstone.judge_process.measuring_lane import MeasuringLane
from torchstone.judge_process.resources import JudgeResources
from torchstone.measuring.ceilings import DeviceCeilings
from torchstone.measuring.device_state import DeviceProbe
from torchstone.measuring.kept_ceilings import KeptCeilings
from torchstone.schema import Case, Normal, Tensor
from torchstone.supervisor.worker_pool import WorkerOptions, WorkerPool

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "guards.py"


@pytest.mark.slow  # without guards a worker is not taken note of when it ends: three waits of 30 s
def test_a_case_can_be_judged_without_guards(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("guards_benchmark", BENCHMARK)
    assert spec is not None
    assert spec.loader is not None
    guards = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(guards)
    case = Case("guards", "aten.relu.default", (Tensor((64, 64), "float32", Normal()),), timed=True)
    device = torch.device("cpu")
    ceilings = DeviceCeilings(device, 1, (), KeptCeilings(None))
    resources = JudgeResources(
        WorkerPool(WorkerOptions()), MeasuringLane("cpu", tmp_path), device, 1, DeviceProbe("cpu"), ceilings
    )
    try:
        with guards.no_guards():
            assert guards.stages(resources, case, "cpu", 8)["check"] > 0  # it asserts itself that the verdict is Agrees
    finally:
        resources.close()
