"""Many pairs with one command, twelve of them bad in twelve ways: every one is reported right, also after `kill -9`."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from harness.generated_pairs import BAD, CHAPTERS, Bad, write_generated_pairs

OPTIONS = ("--device", "cpu", "--no-profile", "--iterations", "20", "--warmup", "2", "--run-id", "x", "--jobs", "2")
MULTIPLIER = ("--timeout-multiplier", "0.2")
"""A file that hangs while it is imported cannot say so itself: its limit of 30 s becomes 6."""
SECONDS = {24: 300.0, 264: 1500.0}
"""For a machine that does other things too; on two idle cores 24 pairs take half a minute."""
FLOODED_BYTES = 1.2 * (1 << 20)


def start(tree: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "torchstone", "pairs", "run", str(tree), *OPTIONS, *MULTIPLIER, "--json"]
    return subprocess.Popen(
        [*command, *arguments], cwd=tree.parent, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def recorded(tree: Path) -> list[str]:
    path = tree.parent / "artifacts" / "x" / "records.jsonl"
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line)["comparison"]["name"] for line in lines if line.endswith(b"\n")]


def finished(process: subprocess.Popen[str], seconds: float) -> list[dict[str, Any]]:
    out, err = process.communicate(timeout=seconds)
    assert process.returncode == 1, err
    found: list[dict[str, Any]] = json.loads(out)["pairs"]
    return found


def check(records: list[dict[str, Any]], pairs: dict[str, Bad | None], folder: Path) -> None:
    """Every pair is there once, and each is what it must be."""
    assert sorted(record["comparison"]["name"] for record in records) == sorted(pairs)
    for record in records:
        assert record["harness_error"] == "", record["comparison"]["name"]
        bad = pairs[record["comparison"]["name"]]
        if bad is None or bad.status == "succeeded":
            check_good(record["comparison"])
        else:
            check_bad(record["comparison"], bad)
    (flood,) = folder.glob("pairs/*/floods/optimized.log")
    assert flood.stat().st_size < FLOODED_BYTES, "100 MB were printed"


def check_good(comparison: dict[str, Any]) -> None:
    sides = (comparison["baseline"], comparison["optimized"])
    assert [side["status"] for side in sides] == ["succeeded", "succeeded"], comparison["name"]
    assert comparison["outputs"]["agrees"]
    assert not comparison["regression"], comparison["name"]
    assert 1.0 < comparison["speedup"] < 4.0, comparison["name"]


def check_bad(comparison: dict[str, Any], bad: Bad) -> None:
    side = comparison["optimized"]
    assert (side["status"], side["stage"]) == (bad.status, bad.stage), (comparison["name"], side["errors"])
    told = side["skip_reason"] if bad.status == "skipped" else side["errors"][0]
    assert told.startswith(bad.message)
    assert side["watchdog"][bad.stage]["status"] == bad.status
    assert (side["timeout_stage"] == bad.stage) == (bad.status == "timeout")
    assert comparison["speedup"] is None
    assert comparison["baseline"]["status"] == "succeeded", "the other side keeps its result"


def run_with_a_kill(tree: Path, pairs: dict[str, Bad | None], seconds: float) -> None:
    """Kill the command in the middle, go on with --resume, and look at everything."""
    until = time.monotonic() + seconds
    with start(tree) as process:
        while len(recorded(tree)) < len(pairs) // 3:
            assert process.poll() is None, process.stderr and process.stderr.read()
            assert time.monotonic() < until, recorded(tree)
            time.sleep(0.05)
        process.kill()
    before = recorded(tree)
    assert len(before) < len(pairs)
    with start(tree, "--resume") as process:
        records = finished(process, seconds)
    check(records, pairs, tree.parent / "artifacts" / "x")
    assert recorded(tree)[: len(before)] == before, "what was done is not done again"
    assert len(recorded(tree)) == len(pairs)


def test_a_generated_tree_has_all_twelve_bad_pairs(tmp_path: Path) -> None:
    for count in SECONDS:
        pairs = write_generated_pairs(tmp_path / str(count), count)
        assert len(pairs) == count
        assert [bad for bad in pairs.values() if bad] == list(BAD)
        assert len({name.split("/")[0] for name in pairs}) == CHAPTERS


def test_24_pairs_with_12_bad_ones_are_reported_right_through_kill_9_and_resume(tmp_path: Path) -> None:
    pairs = write_generated_pairs(tmp_path / "tree", 24)
    run_with_a_kill(tmp_path / "tree", pairs, SECONDS[24])


@pytest.mark.slow
def test_264_pairs_with_12_bad_ones_are_reported_right(tmp_path: Path) -> None:
    pairs = write_generated_pairs(tmp_path / "tree", 264)
    with start(tmp_path / "tree") as process:
        check(finished(process, SECONDS[264]), pairs, tmp_path / "artifacts" / "x")


@pytest.mark.slow
def test_264_pairs_survive_kill_9_and_resume(tmp_path: Path) -> None:
    pairs = write_generated_pairs(tmp_path / "tree", 264)
    run_with_a_kill(tmp_path / "tree", pairs, SECONDS[264])
