"""A thousand rollouts at once on the CPU, by the benchmark's own program, and the tables that it prints."""

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
KINDS = {"right: agrees", "wrong: disagrees", "broken: crashed"}
ROLLOUTS = int(os.environ.get("TORCHSTONE_ROLLOUTS", "1000"))
"""Fewer project the whole run."""
DEADLINE_SECONDS = 3000
"""Of the whole run. On a machine with a load of 12, and others that measured meanwhile, 604 rollouts took 1007 s."""
MOST_PROCESSOR_SECONDS = 2 * 480 / 1000
"""Of one reward: more, and two idle cores could not give a thousand within eight minutes."""


def rollouts(folder: Path, *arguments: str) -> tuple[dict[str, Any], str]:
    """What the benchmark measured, and what it printed."""
    told = folder / "rollouts.json"
    command = (sys.executable, "benchmarks/rollouts.py", "--device", "cpu", "--json", str(told), *arguments)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    found: dict[str, Any] = json.loads(told.read_text())
    return found, done.stdout


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    """The benchmark as a module."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        spec = importlib.util.spec_from_file_location("rollouts_benchmark", ROOT / "benchmarks" / "rollouts.py")
        assert spec is not None
        assert spec.loader is not None
        made = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(made)
        return made
    finally:
        sys.path.pop(0)


def test_no_rollout_sees_anothers_kernel_and_each_gets_the_verdict_of_its_own(tmp_path: Path) -> None:
    found, told = rollouts(tmp_path, "--rollouts", "12", "--judges", "2", "--check-only", "--largest", "1")
    assert found["rewards"] == 12
    assert found["verdicts"].keys() == KINDS
    assert not found["faults"]
    lines = told.splitlines()
    assert any(line.split() == ["wanted", "measured", "holds"] for line in lines)
    assert any("4 broken, 4 wrong, 4 right" in line for line in lines)
    assert found["processor_seconds_per_reward"] > 0
    assert set(found["stage_seconds_per_case"]) >= {"load", "compile", "check"}


@pytest.mark.slow
def test_of_many_rollouts_none_sees_another_the_queue_is_bounded_and_memory_stays(tmp_path: Path) -> None:
    found, told = rollouts(tmp_path, "--rollouts", str(ROLLOUTS), "--judges", "2", "--check-only", "--largest", "1")
    print(told)
    assert found["rewards"] == ROLLOUTS
    assert found["verdicts"].keys() == KINDS
    assert found["most_in_flight"] <= found["queue"] < 1000
    assert found["processor_seconds_per_reward"] <= MOST_PROCESSOR_SECONDS
    assert found["memory_growth"] is not None or ROLLOUTS < 1000
    assert (found["memory_growth"] or 1) <= 1.25
    assert not found["faults"]


@pytest.mark.slow
def test_without_reading_memory_rollouts_have_the_same_verdicts(tmp_path: Path) -> None:
    wanted = ("--check-only", "--largest", "1", "--results", "copied")
    found, _ = rollouts(tmp_path, "--rollouts", "12", "--judges", "2", *wanted)
    assert found["results"] == "copied"
    assert found["verdicts"] == dict.fromkeys(KINDS, 4)


@pytest.mark.slow
def test_a_kernel_is_rewarded_again_and_again_and_the_table_tells_how_much_that_varies(tmp_path: Path) -> None:
    found, told = rollouts(tmp_path, "--repeat", "3", "--largest", "1", "--judges", "1")
    assert found["repeats"] == 3
    assert found["reward_deviation_share"] >= 0
    assert "standard deviation of the reward over its mean" in told


# ---- the tables


def a_run(**changed: Any) -> dict[str, Any]:
    """The figures of a run on a GPU that holds all it should."""
    verdicts = {"right: agrees": 334, "wrong: disagrees": 333, "broken: crashed": 333}
    return {
        "device": "cuda",
        "measured": True,
        "rollouts": 2000,
        "rewards": 1000,
        "seconds": 300.0,
        "rewards_per_minute": 200.0,
        "rewards_per_hour_projected": 12_000,
        "processor_seconds_per_reward": 0.4,
        "lane_wait_seconds_per_case": 0.01,
        "most_in_flight": 64,
        "queue": 64,
        "memory_growth": 1.02,
        "gpu_utilisation_percent": 61.5,
        "verdicts": verdicts,
        "mixed_up": 0,
        **changed,
    }


def missed(benchmark: ModuleType, found: dict[str, Any]) -> list[str]:
    return [each.what for each in benchmark.claims_of(found) if each.holds is False]


def test_the_table_says_which_claim_does_not_hold(benchmark: ModuleType) -> None:
    assert missed(benchmark, a_run()) == []
    assert missed(benchmark, a_run(rewards_per_hour_projected=11_999)) == ["rewards an hour"]
    assert missed(benchmark, a_run(most_in_flight=65)) == ["kernels in flight"]
    only_right = {"right: agrees": 1000}
    assert missed(benchmark, a_run(verdicts=only_right)) == ["kernels"], "no speed of broken kernels was measured"
    assert missed(benchmark, a_run(verdicts={"right: agrees": 8})) == [], "too few for a share"
    assert missed(benchmark, a_run(memory_growth=1.26)) == ["memory, last quarter over first"]
    assert missed(benchmark, a_run(mixed_up=1)) == ["rollouts with another verdict, or that see another"]
    slow_cpu = a_run(device="cpu", rewards_per_hour_projected=100, gpu_utilisation_percent=None)
    assert missed(benchmark, slow_cpu) == [], "timed rewards on the CPU have no wanted rate"
    assert missed(benchmark, {**slow_cpu, "measured": False}) == ["rewards an hour"]


def test_the_table_states_the_use_of_the_gpu_and_the_shares_of_kernels(
    benchmark: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    benchmark.print_claims(benchmark.claims_of(a_run()))
    told = capsys.readouterr().out
    assert "61.5 % of the time" in told
    assert "333 broken, 333 wrong, 334 right" in told


def test_the_spread_of_a_reward_is_compared_with_what_is_wanted_on_a_gpu(benchmark: ModuleType) -> None:
    found = {"device": "cuda", "repeats": 50, "reward_deviation_share": 0.0149, "faults": []}
    what = "standard deviation of the reward over its mean"
    assert missed(benchmark, found) == []
    assert missed(benchmark, {**found, "reward_deviation_share": 0.0151}) == [what]
    assert missed(benchmark, {**found, "device": "cpu", "reward_deviation_share": 0.5}) == []
    assert missed(benchmark, {**found, "faults": ["unjudged"]}) == ["judgements that failed"]
