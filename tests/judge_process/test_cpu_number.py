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
def test_nearly_all_intervals_hold_the_truth_beside_busy_loops(timings: dict[float, list[Timing]]) -> None:
    """One of twenty may miss it. Of nine, three would by chance in one of a hundred runs."""
    known = [(truth, each.speedup) for truth, found in timings.items() for each in found if each.speedup is not None]
    missed = [(truth, each.ratio, each.low, each.high) for truth, each in known if not each.low <= truth <= each.high]
    assert len(known) >= 5
    assert len(missed) <= 2, missed


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


def test_warm_times_are_those_of_one_call_repeated_by_the_reference(number: ModuleType) -> None:
    call = number.WARM[2]
    (record,) = LocalExecutor(ExecutorOptions(device="cpu")).run([number.warm_job(call)])
    assert record.measurement is not None, explain(record.verdict)
    repeated = [block for block in record.measurement.blocks if block.way == "repeated"]
    assert {block.party for block in repeated} == {"reference"}
    assert len({block.calls for block in repeated}) == 2
    here_ns, beside_ns = timing(record.measurement).reference_ns, number._beside_ns(call)[0]
    assert here_ns / beside_ns == pytest.approx(1, abs=0.6)  # 3 times before calls were repeated; machines are busy


def test_who_writes_to_its_arguments_repeats_no_call(number: ModuleType) -> None:
    call = number.Warm("aten.relu_.default", ((64, 256),))
    (record,) = LocalExecutor(ExecutorOptions(device="cpu")).run([number.warm_job(call)])
    assert record.measurement is not None, explain(record.verdict)
    assert not any(block.way == "repeated" for block in record.measurement.blocks)
