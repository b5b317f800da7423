"""Beside two busy loops the CPU number is right: for torch against itself, and where the ratio of work is known."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path
from types import ModuleType

import pytest

from torchstone.executors.base import ExecutorOptions
from torchstone.executors.local import LocalExecutor
from torchstone.measuring import Timing, timing
from torchstone.schema import Agrees, explain

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "cpu_number.py"
REPEATS = 3


@pytest.fixture(scope="module")
def number() -> ModuleType:
    spec = importlib.util.spec_from_file_location("cpu_number", BENCHMARK)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    sys.modules["cpu_number"] = found
    spec.loader.exec_module(found)
    return found


@pytest.fixture(scope="module")
def timings(number: ModuleType) -> dict[float, list[Timing]]:
    """By the true ratio, each in a judge of its own."""
    found: dict[float, list[Timing]] = {}
    with number.busy(2):
        for pair in number.INJECTED[:3]:
            for _ in range(REPEATS):
                (record,) = LocalExecutor(ExecutorOptions(device="cpu")).run([number.job(pair)])
                assert isinstance(record.verdict, Agrees), explain(record.verdict)
                assert record.measurement is not None
                found.setdefault(pair.truth, []).append(timing(record.measurement))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("truth", [1.0, 0.5, 2.0])
def test_a_known_ratio_of_work_is_held_by_the_intervals(truth: float, timings: dict[float, list[Timing]]) -> None:
    known = [each.speedup for each in timings[truth] if each.speedup is not None]
    if not known:
        pytest.skip(f"nothing was decided on this machine: {timings[truth][0].unresolved}")
    centre = sum(math.log(each.ratio) for each in known) / len(known)
    assert centre == pytest.approx(math.log(truth), abs=0.12)
    wrong = {1.0: {"faster", "slower"}, 0.5: {"faster", "same"}, 2.0: {"slower", "same"}}[truth]
    assert not wrong & {each.outcome for each in known}


def test_the_programs_of_the_benchmark_have_the_ratio_that_they_say(number: ModuleType) -> None:
    for pair in number.INJECTED:
        problem = number._problem(pair)
        assert problem.count(pair.step) == pair.reference
        assert number.job(pair).case.timed
    assert {pair.truth > 1 for pair in number.INJECTED} == {True, False}, "in both directions"
