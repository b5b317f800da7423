"""benchmarks/plans.py: what it counts exists, so that the benchmark can run on a GPU where it is seldom run."""

from __future__ import annotations

import importlib.util
from collections import Counter
from pathlib import Path
from types import ModuleType

import torch

from torchstone.judge_process.variant_checks import HiddenVariants

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "plans.py"


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("plans_benchmark", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_check_that_is_timed_has_its_place_in_the_judge() -> None:
    plans = script()
    before = HiddenVariants._evaluate
    with plans.counted(Counter(), Counter(), plans.Clock(torch.device("cpu"))):
        assert HiddenVariants._evaluate is not before
    assert HiddenVariants._evaluate is before
