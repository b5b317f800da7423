"""The reports have the lines and columns that readers know, and count a failure as nothing but a failure."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import msgspec
import pytest

from harness.reporting import report
from harness.trees import compared, failed
from torchstone.harness.changes_between_runs import compare_runs
from torchstone.harness.discovery import Problem
from torchstone.harness.render import closing_line, render
from torchstone.harness.report import PairsReport
from torchstone.harness.results import OutputComparison, PairRecord
from torchstone.reports.render import make_console
from torchstone.schema import decode


def wrong(name: str) -> object:
    """Both sides are fast; their outputs differ."""
    outputs = OutputComparison(False, 1, "y", 0.5, 0.01, "y differs by 0.5 of its largest value")
    return msgspec.structs.replace(compared(name, 100.0, 1.0), outputs=outputs)


@pytest.fixture(scope="module")
def whole() -> PairsReport:
    comparisons = [
        compared("ch1/a", 2.0, 1.0),
        compared("ch1/b", 8.0, 1.0),
        compared("ch2/slower", 1.0, 2.0),
        failed("ch3/broken"),
        failed("ch3/late", "timeout", "TIMEOUT: setup exceeded 30 s"),
        wrong("ch3/wrong"),
        failed("ch10/big", "skipped", "needs 8 GPUs"),
    ]
    problems = (Problem("ch1/optimized_x.py", "has no baseline"),)
    return report(comparisons, not_run=("ch11/later", "ch1/later"), problems=problems)  # type: ignore[arg-type]


def test_the_summary_has_the_known_lines(whole: PairsReport) -> None:
    page = whole.files["benchmark_test_results.md"].decode()
    for line in (
        "- **Chapters tested:** 3/5",
        "- **Total benchmarks:** 9",
        "- **Successful:** 3",
        "- **Failed:** 3",
        "- **Skipped:** 1",
        "- **Not run:** 2",
        "- **Regressions:** 1",
        "- **Average speedup:** 2.00x (geometric mean)",
        "- **Best speedup:** 8.00x (ch1: b)",
        "- **Worst speedup:** 0.50x (ch2: slower)",
    ):
        assert line in page.splitlines()


def test_the_chapters_have_the_known_columns_and_pass_if_nothing_failed(whole: PairsReport) -> None:
    page = whole.files["benchmark_test_results.md"].decode()
    table = page.partition("## Per-Chapter Summary\n\n")[2].partition("\n\n")[0].splitlines()
    assert table == [
        "| Chapter | Status | Benchmarks | Successful | Avg Speedup |",
        "| --- | --- | --- | --- | --- |",
        "| ch1 | PASS | 3 | 2 | 4.00x |",
        "| ch2 | PASS | 1 | 1 | 0.50x |",
        "| ch3 | FAIL | 3 | 0 | – |",
        "| ch10 | SKIPPED | 1 | 0 | – |",
        "| ch11 | NOT RUN | 1 | 0 | – |",
    ]


def test_a_failure_has_its_side_stage_reason_and_suggestion_and_no_speedup(whole: PairsReport) -> None:
    page = whole.files["benchmark_test_results.md"].decode()
    rows = [line for line in page.splitlines() if line.startswith("| ch3")]
    assert "| ch3 | wrong | 100 | 1.00 | – | – | failed |" in rows
    assert "| ch3/broken | optimized | setup | ValueError: no such layer |  |" in rows
    assert "| ch3/late | optimized | setup | TIMEOUT: setup exceeded 30 s | raise --timeout-multiplier |" in rows
    assert "| ch3/wrong | pair | validation | y differs by 0.5 of its largest value |  |" in rows
    assert "| ch10 | big | 2.00 | – | – | – | skipped: needs 8 GPUs |" in page
    assert "| ch1/optimized\\_x.py | has no baseline |" in page


def test_without_a_speedup_there_is_no_average_best_or_worst() -> None:
    summary = report([failed("ch1/a")]).summary
    assert (summary.average_speedup, summary.best, summary.worst) == (None, None, None)
    assert report([compared("ch1/a", 1.0, 4.0)]).summary.best is not None, "a run of regressions has a best one too"


def test_the_json_holds_every_record_in_full(whole: PairsReport) -> None:
    found = json.loads(whole.files["benchmark_test_results.json"])
    assert found["summary"]["total_benchmarks"] == 9
    assert found["summary"]["chapters"][0]["average_speedup"] == pytest.approx(4.0)
    assert tuple(decode(json.dumps(each), PairRecord) for each in found["pairs"]) == whole.pairs
    assert [pair["name"] for pair in found["not_run"]] == ["ch11/later", "ch1/later"]
    assert found["manifest"]["git"]["commit"] == "abc"


def test_a_pipe_gets_plain_tables_and_a_terminal_titles(whole: PairsReport) -> None:
    stream = io.StringIO()
    render(whole, Path("artifacts/a"), make_console(stream))
    text = stream.getvalue()
    assert re.search(
        r"^\| ch1 +\| a +\| +2\.00 \| +1\.00 \| +2\.00x \| 1\.98 to 2\.02 +\| succeeded", text, re.MULTILINE
    )
    assert "Chapters tested: 3/5" in text
    last = str(closing_line(whole.summary, Path("artifacts/a")))
    assert last.startswith("9 pairs, 3 successful, 3 failed, 1 skipped, 2 not run, 1 regressions · speedup 2.00x")
    assert text.rstrip().endswith(last)


def test_what_a_benchmark_says_cannot_break_the_tables() -> None:
    hostile = report([failed("ch1/a", message="x | y\n\x1b[31m`z` <b>")])
    page = hostile.files["benchmark_test_results.md"].decode()
    assert "x \\| y \\\\x1b\\[31m\\`z\\` \\<b\\>" in page
    stream = io.StringIO()
    render(hostile, Path("x"), make_console(stream))
    assert "\x1b" not in stream.getvalue()


# ---- comparing runs


def changes(before: PairsReport, after: PairsReport, threshold: float = 5.0) -> dict[str, str]:
    return {pair.name: pair.change for pair in compare_runs(before, after, threshold).pairs}


@pytest.mark.parametrize(
    ("after", "change"),
    [
        ((2.0, 1.0), "same"),
        ((2.0, 1.02), "same"),
        ((2.0, 1.2), "slower"),
        ((2.0, 0.8), "faster"),
        ((2.4, 1.2), "both sides slower"),
        ((1.6, 0.8), "both sides faster"),
        ((4.0, 1.0), "same"),
    ],
)
def test_a_pair_is_slower_only_against_its_own_baseline(after: tuple[float, float], change: str) -> None:
    assert changes(report([compared("ch1/a")]), report([compared("ch1/a", *after)])) == {"ch1/a": change}


def test_intervals_that_reach_the_threshold_decide_nothing() -> None:
    loose = report([compared("ch1/a", 2.0, 1.2, width=0.3)])
    assert changes(report([compared("ch1/a")]), loose) == {"ch1/a": "undecided"}
    assert changes(report([compared("ch1/a")]), report([compared("ch1/a", 2.0, 1.2)]), 25) == {"ch1/a": "same"}


def test_failures_and_pairs_in_one_run_only_are_told() -> None:
    before = report([compared("ch1/a"), failed("ch1/b"), failed("ch1/c"), compared("ch1/gone")])
    after = report([failed("ch1/a"), compared("ch1/b"), failed("ch1/c"), compared("ch1/new")], run_id="b", key="k")
    found = compare_runs(before, after)
    assert {pair.name: pair.change for pair in found.pairs} == {
        "ch1/a": "broke",
        "ch1/b": "mended",
        "ch1/c": "failed both",
    }
    assert (found.only_before, found.only_after) == (("ch1/gone",), ("ch1/new",))
    assert [pair.name for pair in found.worse] == ["ch1/a"]
    assert all(pair.files_changed for pair in found.pairs)
