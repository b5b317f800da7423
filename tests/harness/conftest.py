"""Benchmark files for these tests, and one runner for all of them: its process imports torch once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmark_texts import QUICK, RunPair, benchmark_text
from torchstone.harness.local_runner import LocalPairRunner
from torchstone.harness.pair_runner import PairOrder
from torchstone.harness.results import Comparison


@pytest.fixture(scope="session", autouse=True)
def _lane_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Whatever else is judged on this machine must not keep these tests waiting; those beside them must take turns."""
    folder = tmp_path_factory.getbasetemp()
    shared = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torchstone.judge_process.measuring_lane._SHARED_FOLDER", shared / "lanes")
        yield


@pytest.fixture(scope="session")
def runner() -> Iterator[LocalPairRunner]:
    with LocalPairRunner("cpu") as made:
        yield made


@pytest.fixture
def run_pair(tmp_path: Path, runner: LocalPairRunner) -> RunPair:
    """``run_pair(optimized_text, baseline_text)`` -> what came of it, with few calls."""

    def run(optimized: str, baseline: str | None = None, **fields: Any) -> Comparison:
        chapter = tmp_path / "ch1"
        chapter.mkdir(exist_ok=True)
        (chapter / "baseline_it.py").write_text(baseline if baseline is not None else benchmark_text())
        (chapter / "optimized_it.py").write_text(optimized)
        order = {
            "name": "ch1/it",
            "root": tmp_path,
            "baseline": chapter / "baseline_it.py",
            "optimized": chapter / "optimized_it.py",
            "device": "cpu",
            "seed": 7,
            "overrides": QUICK,
            "artifacts": tmp_path / "artifacts",
            "regression_threshold_pct": 1e4,  # few calls beside other tests may look slower than they are
            **fields,
        }
        return runner.run(PairOrder(**order))

    return run
