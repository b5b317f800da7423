"""The page about the first result: its samples are those of a narrow terminal, its rules those of the code."""

from __future__ import annotations

import re

from docs.pages import ROOT
from torchstone.measuring import short_blocks, speedup
from torchstone.reports.case_results import VERDICT_NAMES

PAGE = (ROOT / "docs" / "first-result.md").read_text()


def test_samples_fit_the_terminal_of_80_columns_that_they_are_from() -> None:
    samples = re.findall(r"```text\n(.*?)```", PAGE, flags=re.DOTALL)
    assert len(samples) == 4
    assert max(len(line) for sample in samples for line in sample.splitlines()) <= 80


def test_the_rule_for_faster_and_slower_is_that_of_the_statistics() -> None:
    assert speedup.DECISION_WIDTH == 1.5
    assert f"on a CPU within ±{100 * short_blocks.SAME_WITHIN:.0f} %" in PAGE
    assert f"made half as wide again, lies beyond ±{100 * speedup.NOISE_BAND:.0f} %" in PAGE


def test_every_verdict_is_explained() -> None:
    explained = re.findall(r"^\| `(\w+)` \|", PAGE.partition("## Verdicts")[2], flags=re.MULTILINE)
    assert sorted(explained) == sorted(VERDICT_NAMES)
