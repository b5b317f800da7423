"""The whole program on this CPU: every timed case says how far it is from what the machine allows."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow


def torchstone(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    paths = [str(Path(part).resolve()) for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "XDG_CACHE_HOME": str(cwd / "cache")}
    command = [sys.executable, "-m", "torchstone", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment, timeout=300, check=False)


_SANE_PERCENT = 250
"""A hundred on a quiet machine. Ceilings and times are taken one after the other, and neighbours come and go."""
_TRIES = 2
"""Beside other programs a time may stay unresolved, and has no share of the limit then."""


def entries(run: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((run / "full_results.json").read_text())
    return found


def resolved(run: Path) -> list[dict[str, Any]]:
    return [entry for entry in entries(run) if entry["speedup"] is not None]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder, in a folder with caches of its own."""
    here = tmp_path_factory.mktemp("limits")
    arguments = ["--suite", "smoke", "--backend", "aten", "--ops", "relu,mm", "--device", "cpu", "--effort", "quick"]
    for number in range(_TRIES):
        result = torchstone("run", *arguments, "--run-id", f"x{number}", cwd=here)
        assert result.returncode == 0, result.stderr
        assert "of limit" in result.stdout
        folder = here / "torchstone_runs" / f"x{number}"
        if len(resolved(folder)) == 2:
            break
    return folder


def test_every_timed_case_holds_what_its_limit_follows_from(run: Path) -> None:
    lines = (run / "records.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines if '"kind":"record"' in line]
    timed = {item["case"]["operator"]: item["measurement"] for item in records if item.get("measurement")}
    assert set(timed) == {"aten.relu.default", "aten.mm.default"}
    lights = {name: measurement["speed_of_light"] for name, measurement in timed.items()}
    relu, mm = lights["aten.relu.default"], lights["aten.mm.default"]
    assert (relu["read_bytes"], relu["written_bytes"], relu["flops_counted"]) == (1 << 21, 1 << 21, "pointwise")
    assert (mm["flops"], mm["flops_counted"], mm["dtype"]) == (2 * 256**3, "formula", "float32")
    assert all(light["bytes_per_second"] > 0 and light["flops_per_second"] > 0 for light in lights.values())


def test_shares_of_the_limit_are_there_and_sane(run: Path) -> None:
    measured = resolved(run)
    if not measured:
        pytest.skip(f"nothing was resolved in {_TRIES} runs: the machine is too busy to measure anything")
    for entry in measured:
        assert 0 < entry["of_limit_percent"] <= _SANE_PERCENT
        assert entry["over_limit"] == (entry["of_limit_percent"] > 100)
        assert entry["bound"] == {"relu.default": "memory", "mm.default": "compute"}[entry["op_name"]]
    with (run / "operator_summary.csv").open() as file:
        shares = {row["operator"]: row["of_limit_percent"] for row in csv.DictReader(file)}
    assert {name for name, share in shares.items() if share} == {entry["op_name"] for entry in measured}


def test_ceilings_are_kept_among_the_users_caches(run: Path) -> None:
    assert len(list((run.parents[1] / "cache" / "torchstone" / "ceilings").glob("*.json"))) == 1


def test_show_draws_the_roofline(run: Path) -> None:
    result = torchstone("show", ".", "--roofline", "picture.svg", cwd=run)
    assert result.returncode == 0, result.stderr
    texts = [
        element.text for element in ElementTree.parse(run / "picture.svg").iter("{http://www.w3.org/2000/svg}text")
    ]
    numbers = {str(number) for number in range(1, 1 + len(resolved(run)))}
    assert numbers <= set(texts)


def test_a_picture_that_cannot_be_written_is_one_line(run: Path) -> None:
    result = torchstone("show", ".", "--roofline", "nowhere/picture.svg", cwd=run)
    assert result.returncode == 2
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("error: ")
