"""docs/harness.md names every setting with its real default, every status, finding, change and module."""

from __future__ import annotations

import json
import re
from typing import get_args

import msgspec

from docs.pages import ROOT
from torchstone.benchmarks import BenchmarkConfig, BenchmarkDefaults
from torchstone.harness.changes_between_runs import Change
from torchstone.harness.expected_speedups import ExpectationStatus
from torchstone.harness.results import PairStatus

PAGE = (ROOT / "docs" / "harness.md").read_text()


def section(title: str) -> str:
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, title
    return found[1]


def first_cells(title: str) -> set[str]:
    cells = re.findall(r"^\| ([^|]*) \|", section(title), re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def test_the_settings_are_told_with_their_defaults() -> None:
    told = dict(re.findall(r"^\| `(\w+)` \| `([^`]*)` \|", section("Settings"), re.MULTILINE))
    real = json.loads(msgspec.json.encode(BenchmarkDefaults()))
    assert {name: value if name == "mode" else json.loads(value) for name, value in told.items()} == real
    assert tuple(told) == BenchmarkConfig.__struct_fields__


def test_every_word_of_a_result_is_explained() -> None:
    assert set(get_args(PairStatus)) <= first_cells("Results")
    assert set(get_args(Change)) == first_cells("Comparing two runs")
    assert set(get_args(ExpectationStatus)) == first_cells("Expectations")


def test_every_module_of_the_room_that_is_named_exists() -> None:
    for name in first_cells("How it is built"):
        assert (ROOT / "src" / "torchstone" / "harness" / name).exists() or name == "harness/", name
