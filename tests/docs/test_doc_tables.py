"""Figures that stand in the code are the same in the documentation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

import doc_tables
import reward_plot
from docs.pages import PAGES, ROOT, name_of
from torchstone import registry
from torchstone.isolation.sandbox import LAYERS
from torchstone.schema import Verdict


@pytest.mark.parametrize("page", [page for page in PAGES if "<!-- table: " in page.read_text()], ids=name_of)
def test_generated_tables_are_those_that_the_code_gives(page: Path) -> None:
    text = page.read_text()
    assert doc_tables.with_tables(text) == text, "run: make tables-write"


def test_every_table_stands_in_a_page() -> None:
    named = {name for page in PAGES for name in re.findall(r"<!-- table: ([\w-]+) -->", page.read_text())}
    assert named == set(doc_tables.TABLES)


def test_a_table_that_has_drifted_is_written_again() -> None:
    page = ROOT / "docs" / "judging.md"
    drifted = page.read_text().replace("| hidden variants of a case | ", "| hidden variants of a case | 1")
    assert drifted != page.read_text()
    assert doc_tables.with_tables(drifted) == page.read_text()


def test_the_readme_names_every_suite_backend_and_verdict() -> None:
    text = (ROOT / "README.md").read_text()
    aliases = {"traces", "pregenerated", "torchbench-all"}
    wanted = {*registry.suites.names(), *registry.backends.names(), *verdict_names()} - aliases
    assert {name for name in wanted if f"`{name}`" not in text} == set()


def test_the_readme_tells_the_coverage_of_opinfo() -> None:
    row = re.search(r"\| opinfo \| cpu \| float32 \| (\d+) \| (\d+) ", (ROOT / "docs" / "coverage.md").read_text())
    assert row
    operators, cases = row.groups()
    assert f"{operators} operators and {int(cases):,} cases".replace(",", " ") in (ROOT / "README.md").read_text()


def test_the_pages_name_every_verdict_and_every_layer() -> None:
    schema, workers = ((ROOT / "docs" / name).read_text() for name in ("schema.md", "workers.md"))
    assert {name for name in verdict_names() if f"`{name}`" not in schema} == set()
    assert {layer for layer in LAYERS if f"`{layer}`" not in workers} == set()


def verdict_names() -> set[str]:
    return {kind.__struct_config__.tag for kind in get_args(Verdict)}


def test_the_plot_of_the_reward_shows_the_points_that_the_code_gives() -> None:
    plot = (ROOT / "docs" / "pictures" / "gym-reward.svg").read_text()
    assert f"<!-- points: {reward_plot.told(reward_plot.points())} -->" in plot, "run: python tools/reward_plot.py"
