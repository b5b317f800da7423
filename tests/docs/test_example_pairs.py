"""The example pairs run as a whole: what CI sees is what the README shows. With profiling it takes minutes: slow."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from docs.pages import ROOT, environment

PAIRS = ROOT / "examples" / "pairs"


@pytest.mark.parametrize("profiled", [pytest.param(True, marks=pytest.mark.slow), False])
def test_all_example_pairs_run_with_one_command(tmp_path: Path, profiled: bool) -> None:
    command = ["pairs", "run", str(PAIRS), "--device", "cpu", "--run-id", "all"]
    done = subprocess.run(
        [sys.executable, "-m", "torchstone", *command, *([] if profiled else ["--no-profile"])],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    folder = tmp_path / "artifacts" / "all"
    report = json.loads((folder / "benchmark_test_results.json").read_bytes())
    failed = [pair["comparison"] for pair in report["pairs"] if pair["comparison"]["speedup"] is None]
    assert done.returncode == 0, (done.stderr, done.stdout)
    succeeded = [pair for pair in report["pairs"] if pair["comparison"]["speedup"] is not None]
    assert len(succeeded) >= 24
    assert len({pair["chapter"].split("/")[0] for pair in succeeded}) == 5
    assert {pair["name"].split("/")[0] for pair in failed} == {"ch06_hardware"}
    assert len(failed) == 7
    assert all(pair["optimized"]["skip_reason"] for pair in failed)
    for pair in succeeded if profiled else ():
        for side in ("baseline", "optimized"):
            result = pair["comparison"][side]
            assert result["profiler_metrics"]["profilers"] == {"torch": "profiled"}, result["notes"]
            assert (folder / result["artifacts"]["torch"]).stat().st_size > 1000
    names = {path.name for path in folder.iterdir()}
    assert names >= {"records.jsonl", "manifest.json", "plan.json", "benchmark_test_results.md"}
    assert ("pairs" in names) == profiled
    assert (tmp_path / "benchmark_test_results.md").read_text() == (folder / "benchmark_test_results.md").read_text()
    assert "31 pairs, 24 successful, 7 skipped" in done.stdout
