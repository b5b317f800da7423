"""Expectations per hardware: checked by intervals, updated on request, kept in a file that can be committed."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from harness.reporting import manifest, report
from harness.trees import compared, failed
from torchstone.errors import UsageError
from torchstone.harness.expected_speedups import (
    Expectations,
    check_run,
    read_expectations,
    update,
    write_expectations,
)
from torchstone.harness.report import PairsReport

BEFORE = report([compared("ch1/a", 2.0, 1.0)])


def updated(made: PairsReport, before: Expectations | None = None) -> Expectations:
    before = before or Expectations()
    return update(made, before, check_run(made, before))


def findings(made: PairsReport, expected: Expectations) -> dict[str, str]:
    return {each.name: each.finding for each in check_run(made, expected)}


@pytest.mark.parametrize(
    ("optimized_ms", "width", "finding"),
    [
        (1.0, 0.01, "met"),
        (1.04, 0.01, "met"),
        (1.2, 0.01, "regressed"),
        (0.8, 0.01, "improved"),
        (1.2, 0.3, "met"),
    ],
)
def test_only_a_whole_interval_beyond_the_threshold_is_a_regression(
    optimized_ms: float, width: float, finding: str
) -> None:
    now = report([compared("ch1/a", 2.0, optimized_ms, width)])
    assert findings(now, updated(BEFORE)) == {"ch1/a": finding}


def test_new_failed_skipped_and_unmeasured_pairs_have_their_own_finding() -> None:
    expected = updated(report([compared(f"ch1/{name}") for name in ("fails", "skips", "later", "few")]))
    few = msgspec.structs.replace(compared("ch1/few", 1.0, 2.0), speedup_low=None, speedup_high=None)
    now = report(
        [compared("ch1/new"), failed("ch1/fails"), failed("ch1/other"), failed("ch1/skips", "skipped"), few],
        not_run=["ch1/later"],
    )
    assert findings(now, expected) == {
        "ch1/new": "new",
        "ch1/fails": "regressed",
        "ch1/other": "new",
        "ch1/skips": "skipped",
        "ch1/later": "skipped",
        "ch1/few": "undecided",
    }


def test_other_hardware_has_other_expectations() -> None:
    expected = updated(BEFORE)
    elsewhere = report([compared("ch1/a", 2.0, 1.9)], made_under=manifest(hardware_key="AMD EPYC"))
    assert findings(elsewhere, expected) == {"ch1/a": "new"}
    both = updated(elsewhere, expected)
    assert set(both.hardware) == {"NVIDIA H200 (9.0)", "AMD EPYC"}
    assert both.hardware["NVIDIA H200 (9.0)"] == expected.hardware["NVIDIA H200 (9.0)"]


def test_an_update_accepts_what_changed_and_keeps_what_is_met_or_failed() -> None:
    expected = updated(report([compared("ch1/met"), compared("ch1/worse"), compared("ch1/fails")]))
    now = report([compared("ch1/met", 2.0, 1.03), compared("ch1/worse", 2.0, 1.6), failed("ch1/fails")], run_id="b")
    after = updated(now, expected).hardware["NVIDIA H200 (9.0)"]
    assert {name: each.speedup for name, each in after.items()} == {
        "ch1/met": 2.0,
        "ch1/worse": 1.25,
        "ch1/fails": 2.0,
    }
    assert (after["ch1/worse"].run_id, after["ch1/worse"].commit, after["ch1/met"].run_id) == ("b", "abc", "a")
    assert findings(now, updated(now, expected)) == {"ch1/met": "met", "ch1/worse": "met", "ch1/fails": "regressed"}


def test_small_losses_that_are_met_each_time_do_not_add_up_unseen() -> None:
    expected = updated(BEFORE)
    for optimized_ms in (1.03, 1.04, 1.05):
        expected = updated(report([compared("ch1/a", 2.0, optimized_ms)]), expected)
    assert findings(report([compared("ch1/a", 2.0, 1.09)]), expected) == {"ch1/a": "regressed"}


def test_the_file_is_read_as_it_was_written_in_one_order(tmp_path: Path) -> None:
    path = tmp_path / "expectations.json"
    expected = updated(report([compared("ch1/b"), compared("ch1/a")]))
    write_expectations(path, expected)
    assert read_expectations(path) == expected
    text = path.read_text()
    assert text.index('"ch1/a"') < text.index('"ch1/b"')
    assert text.endswith("}\n")
    assert read_expectations(tmp_path / "none.json") == Expectations()


@pytest.mark.parametrize("text", ["", "[]", '{"hardware": 3}', '{"format": 99}'])
def test_a_file_that_holds_no_expectations_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "expectations.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"expectations\.json"):
        read_expectations(path)
