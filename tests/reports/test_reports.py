"""Reports are folds: independent of order, right in their counts, and never a number for a failure."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import made_records as making
from torchstone.backends import Problem
from torchstone.reports import RunReport, make_report
from torchstone.reports.render import MOST_FAILURES, make_console, render
from torchstone.reports.safe_text import markdown_cell, microseconds, natural, one_line, ratio
from torchstone.schema import (
    Agrees,
    Block,
    Crashed,
    Disagrees,
    ErrorStatistics,
    Measurement,
    Missing,
    Party,
    Record,
    Unjudged,
    Unsupported,
    Way,
    decode,
    encode,
)

RELU, ADD, SUM, MM = "aten.relu.default", "aten.add.Tensor", "aten.sum.default", "aten.mm.default"
FOLDER = Path("torchstone_runs/run_1")


def agreeing(operator: str, size: int, candidate_ns: float | None = None, reference_ns: float = 10_000) -> Record:
    measured = None if candidate_ns is None else making.measurement(candidate_ns, reference_ns)
    return making.record(of=making.case(operator, size, timed=measured is not None), measured=measured)


def failing(operator: str, size: int, verdict: Any = None) -> Record:
    chosen = verdict or Disagrees("check", "values", "wrong", ErrorStatistics(3.0, 2.0, 50.0, 0.1))
    return making.record(chosen, of=making.case(operator, size))


def rows(report: RunReport) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(report.files["operator_summary.csv"].decode())))


def results(report: RunReport, name: str = "full_results.json") -> list[dict[str, Any]]:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    found = json.loads(report.files[name], parse_constant=refuse)
    assert isinstance(found, list)
    return found


MIXED = [
    agreeing(RELU, 8, 5_000),
    agreeing(RELU, 16, 2_500),
    agreeing(RELU, 2),
    agreeing(ADD, 8, 20_000),
    failing(ADD, 16),
    failing(SUM, 8, Missing("nothing")),
    failing(SUM, 16, Missing("nothing")),
    agreeing(MM, 4),
]


def test_scores_count_wrong_and_missing_operators() -> None:
    summary = make_report(MIXED).summary
    assert (summary.operators_total, summary.operators_right, summary.operators_missing) == (4, 2, 1)
    assert summary.counts == {"agrees": 5, "disagrees": 1, "missing": 2}
    assert summary.mean_correctness == pytest.approx((1 + 0.5 + 0 + 1) / 4)
    assert summary.geomean_speedup == pytest.approx(math.sqrt(8))
    assert summary.operators_timed == 1
    assert summary.perf_at_p == 0.25


def test_an_operator_with_a_wrong_case_lends_no_speed_to_the_run() -> None:
    summary = make_report([agreeing(ADD, 8, 1_000), failing(ADD, 16)]).summary
    assert summary.geomean_speedup is None
    assert summary.perf_at_p == 0
    assert summary.operators[0].geomean_speedup == pytest.approx(10)


def capped(operator: str, size: int) -> Record:
    """A record of short blocks that claim a speed, which calls that wait for each other refute."""
    times: dict[Party, float] = {"candidate": 40_000, "reference": 100_000, "shim": 0}
    ways: dict[Way, dict[Party, float]] = {"called": times, "chained": {**times, "candidate": 98_000}}
    blocks = [
        Block(number + 100 * place, party, 4, round(200_000 + 4 * ns + 50 * number), round(4 * ns), way)
        for place, (way, shown) in enumerate(ways.items())
        for party, ns in shown.items()
        for number in range(12)
    ]
    measured = Measurement("short-blocks", tuple(blocks), 1, 2, threads=1, distinct_inputs=4, bytes_per_call=32)
    return making.record(of=making.case(operator, size, timed=True), measured=measured)


def test_unresolved_cases_are_counted_beside_the_mean_and_are_no_speed() -> None:
    records = [agreeing(RELU, 8, 5_000), agreeing(RELU, 16, 1.0), agreeing(ADD, 8, 1.0), agreeing(MM, 4)]
    summary = make_report(records).summary
    assert summary.geomean_speedup == pytest.approx(2)
    assert (summary.cases_unresolved, summary.operators_unresolved, summary.operators_timed) == (2, 1, 1)
    assert summary.perf_at_p == pytest.approx(1 / 3)
    text = shown(records, io.StringIO())
    assert "speedup 2.00x without 2 unresolved cases, perf@1 0.33" in text
    assert "(without 1 unresolved)" in text
    assert "not resolved" not in text


def test_a_capped_speed_says_so_and_why() -> None:
    report = make_report([capped(RELU, 8)])
    (operator,) = report.summary.operators
    assert operator.speedup_low is not None
    assert operator.geomean_speedup is not None
    assert operator.speedup_high is not None
    assert operator.speedup_low < operator.geomean_speedup < operator.speedup_high
    assert operator.reference_ns / operator.candidate_ns == pytest.approx(operator.geomean_speedup)  # type: ignore[operator]
    assert "capped: 2.50x in the blocks; calls one at a time show 1.02x" in shown([capped(RELU, 8)], io.StringIO())
    (row,) = results(report)
    assert "2.50x in the blocks" in row["capped"]


def test_perf_at_p_is_strict_and_takes_the_threshold() -> None:
    records = [agreeing(RELU, 8, 5_000)]
    assert make_report(records, p=1.9).summary.perf_at_p == 1
    assert make_report(records, p=2.1).summary.perf_at_p == 0


def test_a_time_that_cannot_be_resolved_is_no_speed() -> None:
    report = make_report([agreeing(RELU, 8, 1.0)])
    (operator,) = report.summary.operators
    assert (operator.measured_cases, operator.resolved_cases, operator.geomean_speedup) == (1, 0, None)
    (row,) = results(report)
    assert row["speedup"] is None
    assert row["benchmark_time_ms"] is None
    assert "overhead of calling" in row["unresolved"]
    assert report.summary.perf_at_p == 0


def test_a_measurement_without_pairs_does_not_break_the_report() -> None:
    lonely = Measurement("blocks-less-shim", (Block(0, "candidate", 1, 1, 1),), 0, 1, 1, 1, 1)
    report = make_report([making.record(measured=lonely)])
    assert report.results[0].timing is None


def test_cases_that_the_reference_cannot_do_say_nothing_about_the_kernel() -> None:
    records = [agreeing(RELU, 8), failing(RELU, 16, Unsupported("reference", "no"))]
    (operator,) = make_report(records).summary.operators
    assert operator.right
    assert operator.correctness == 1
    assert operator.excused == 1
    (refused,) = make_report([agreeing(RELU, 8), failing(RELU, 16, Unsupported("candidate", "no"))]).summary.operators
    assert not refused.right
    assert refused.correctness == 0.5


def test_an_unjudged_case_is_not_right() -> None:
    (operator,) = make_report([agreeing(RELU, 8), failing(RELU, 16, Unjudged("died"))]).summary.operators
    assert not operator.right


def test_total_tests_is_the_number_of_cases_of_that_operator() -> None:
    by_name = {row["operator"]: row for row in rows(make_report(MIXED))}
    assert {name: row["total_tests"] for name, row in by_name.items()} == {
        "relu.default": "3",
        "add.Tensor": "2",
        "sum.default": "2",
        "mm.default": "1",
    }
    relu, add, missing = by_name["relu.default"], by_name["add.Tensor"], by_name["sum.default"]
    assert (relu["performance_tests"], relu["passed_performance_tests"], relu["failed_performance_tests"]) == (
        "2",
        "2",
        "0",
    )
    assert (add["passed_correctness_tests"], add["failed_correctness_tests"], add["disagrees"]) == ("1", "1", "1")
    assert (missing["missing"], missing["correctness_rate"], missing["geomean_speedup"]) == ("2", "0.0", "")
    assert float(relu["geomean_speedup"]) == pytest.approx(math.sqrt(8))
    assert float(relu["avg_speedup"]) == pytest.approx(3)
    assert float(add["max_absolute_error"]) == 3.0


def test_the_columns_that_users_know_come_first() -> None:
    header = make_report(MIXED).files["operator_summary.csv"].decode().splitlines()[0]
    assert header.startswith(
        "operator,total_tests,correctness_tests,performance_tests,passed_correctness_tests,passed_performance_tests,"
        "failed_correctness_tests,failed_performance_tests,correctness_rate,avg_speedup,geomean_speedup,"
        "max_absolute_error,max_relative_error,"
    )


def test_milliseconds_are_milliseconds() -> None:
    (row,) = results(make_report([agreeing(RELU, 8, 5_000, 10_000)]))
    assert row["benchmark_time_ms"] == pytest.approx(0.005)
    assert row["reference_time_ms"] == pytest.approx(0.010)
    assert row["speedup"] == pytest.approx(2)
    assert (row["op_name"], row["operator"], row["test_type"]) == ("relu.default", RELU, "performance")


def test_a_failure_carries_its_words_and_no_number() -> None:
    crash = Crashed("check", "exception", "ValueError: no", traceback="Traceback …")
    report = make_report([agreeing(RELU, 8), failing(RELU, 16, crash)])
    (row,) = results(report, "failed_tests.json")
    assert (row["is_correct"], row["verdict"], row["error_type"]) == (False, "crashed", "ValueError")
    assert row["error_msg"] == "check: ValueError: no"
    assert row["traceback"] == "Traceback …"
    assert row["speedup"] is None
    assert row["max_abs_error"] is None
    assert len(results(report)) == 2


def test_errors_that_are_not_finite_are_null_before_and_after_the_journal() -> None:
    fresh = making.record(Disagrees("check", "values", "inf", ErrorStatistics(math.inf, math.nan, math.inf, None)))
    stored = decode(encode(fresh), Record)
    assert make_report([fresh]).files == make_report([stored]).files
    assert results(make_report([fresh]))[0]["max_abs_error"] is None


def test_a_nan_is_infinitely_far_beyond_its_bound_before_and_after_the_journal() -> None:
    errors = ErrorStatistics(0.0, 0.0, "inf", 0.5)
    fresh = making.record(Disagrees("check", "nonfinite", "got nan, expected 0.2", errors))
    finite = making.record(Disagrees("check", "values", "got 9, expected 1", ErrorStatistics(8.0, 8.0, 70.0, 0.5)))
    report = make_report([finite, fresh])
    assert report.files == make_report([decode(encode(each), Record) for each in (finite, fresh)]).files
    assert sorted(str(row["worst_over_bound"]) for row in results(report)) == ["70.0", "inf"]
    (row,) = csv.DictReader(io.StringIO(report.files["operator_summary.csv"].decode()))
    assert float(row["worst_over_bound"]) == math.inf
    assert json.loads(encode(report.summary))["operators"][0]["worst_over_bound"] == "inf"
    shown = io.StringIO()
    render(report, FOLDER, make_console(shown))
    header, *rows = [line for line in shown.getvalue().splitlines() if line.startswith("|")][:3]
    place = [cell.strip() for cell in header.split("|")].index("error/bound")
    assert rows[-1].split("|")[place].strip() == "inf"


def test_cases_are_ordered_by_the_numbers_in_them() -> None:
    labels = [row["args"] for row in results(make_report([agreeing(RELU, size) for size in (128, 16, 2)]))]
    assert labels == ["T([2], f32)", "T([16], f32)", "T([128], f32)"]


def test_the_overall_table_is_ordered_by_speed_as_a_number() -> None:
    speeds = {RELU: 1_000, ADD: 110, SUM: 20_000}
    report = make_report([*(agreeing(name, 8, ns) for name, ns in speeds.items()), agreeing(MM, 8)])
    text = report.files["OVERALL_SUMMARY.md"].decode()
    places = [text.index(markdown_cell(name)) for name in (ADD, RELU, SUM, MM)]
    assert places == sorted(places)
    assert "| Correctness Score | 1.00 |" in text
    assert "| Perf@1 Score | 0.50 |" in text


def test_problems_of_the_backend_are_in_the_overall_summary() -> None:
    report = make_report(MIXED, [Problem("kernels/add", "two | entry\npoints")])
    assert r"| kernels/add | two \| entry points |" in report.files["OVERALL_SUMMARY.md"].decode()


def test_a_run_without_records_still_has_its_files() -> None:
    report = make_report([])
    assert set(report.files) == {"OVERALL_SUMMARY.md", "operator_summary.csv", "full_results.json", "failed_tests.json"}
    assert report.summary.mean_correctness is None
    assert results(report) == []


verdicts = st.sampled_from(making.VERDICTS)
operators = st.sampled_from((RELU, ADD, SUM))


@st.composite
def some_records(draw: st.DrawFn) -> list[Record]:
    chosen = draw(
        st.lists(st.tuples(operators, st.integers(1, 200), verdicts), unique_by=lambda item: item[:2], max_size=8)
    )
    records = []
    for operator, size, verdict in chosen:
        timed = isinstance(verdict, Agrees) and draw(st.booleans())
        times = making.measurement(draw(st.integers(500, 9_000)), draw(st.integers(500, 9_000))) if timed else None
        records.append(making.record(verdict, of=making.case(operator, size, timed), measured=times))
    return records


@settings(max_examples=40)
@given(some_records(), st.randoms(use_true_random=False))
def test_equal_records_in_any_order_give_equal_bytes(records: list[Record], random: Any) -> None:
    shuffled = list(records)
    random.shuffle(shuffled)
    first, second = make_report(records), make_report(shuffled)
    assert first.files == second.files
    assert first.summary == second.summary


@settings(max_examples=40)
@given(some_records())
def test_counts_add_up_and_scores_stay_within_bounds(records: list[Record]) -> None:
    summary = make_report(records).summary
    assert sum(summary.counts.values()) == summary.cases == len(records)
    assert sum(item.cases for item in summary.operators) == len(records)
    assert 0 <= summary.perf_at_p <= 1
    assert summary.operators_right + summary.operators_missing <= summary.operators_total
    for item in summary.operators:
        assert item.correctness is None or 0 <= item.correctness <= 1
        assert item.resolved_cases <= item.measured_cases <= item.timed_cases
        assert (item.geomean_speedup is None) == (item.resolved_cases == 0)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(records: list[Record], stream: io.StringIO) -> str:
    render(make_report(records), FOLDER, make_console(stream))
    return stream.getvalue()


def test_a_pipe_gets_plain_whole_lines() -> None:
    long = "aten." + "long_operator_name_" * 8 + ".default"
    text = shown([agreeing(long, 8, 5_000), failing(ADD, 16)], io.StringIO())
    assert "\x1b" not in text
    assert long in text
    assert "1/1 agrees" in text
    assert "2.00x" in text
    assert "T([16], f32)" in text
    assert "check: wrong" in text


def test_a_terminal_gets_colour_unless_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[32m" in shown(MIXED, Terminal())
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[32m" not in shown(MIXED, Terminal())


def test_the_closing_line_tells_counts_missing_isolation_and_folder() -> None:
    last = shown(MIXED, io.StringIO()).splitlines()[-1]
    for part in (
        "4 operators: 2 right, 1 not right, 1 missing",
        "5 agrees",
        "isolation: processes",
        f"{FOLDER}{os.sep}",
    ):
        assert part in last


def test_the_closing_line_says_that_only_stated_shapes_were_judged() -> None:
    words = "judged on stated shapes only"
    assert words not in shown(MIXED, io.StringIO())
    stated = [msgspec.structs.replace(record, shapes="stated") for record in MIXED]
    assert words in shown(stated, io.StringIO()).splitlines()[-1]


def test_a_layer_that_was_not_always_there_is_told_apart() -> None:
    records = [
        making.record(of=making.case(size=1), layers=("processes", "landlock")),
        making.record(layers=("processes",)),
    ]
    isolation = make_report(records).summary.isolation
    assert isolation.layers == ("processes",)
    assert isolation.partly == ("landlock",)
    assert isolation.words == "processes (partly landlock)"


def test_a_run_that_judged_nothing_claims_nothing_about_isolation() -> None:
    assert make_report([failing(SUM, 8, Missing("nothing"))]).summary.isolation.words == "–"


def test_a_case_that_was_not_judged_takes_no_layer_from_those_that_were() -> None:
    unjudged = making.record(Unjudged("died"), of=making.case(size=1), layers=())
    assert make_report([unjudged, making.record()]).summary.isolation.words == "processes"


def test_what_a_kernel_says_cannot_command_the_terminal_or_break_a_table() -> None:
    message = "\x1b[2J[red]gone[/red]\x07\nsecond\u202eline | <script>"
    records = [failing(RELU, 8, Crashed("check", "exception", message))]
    text = shown(records, io.StringIO())
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "[red]gone[/red]" in text
    markdown = make_report(records).files["OVERALL_SUMMARY.md"].decode()
    assert "<script>" not in markdown.replace("\\<", "")
    assert all(line.startswith("|") for line in markdown.splitlines() if "gone" in line)


def test_many_failures_are_cut_with_a_pointer_to_the_rest() -> None:
    sizes = range(1, MOST_FAILURES + 11)
    records = [failing(RELU, size, Disagrees("check", "values", f"wrong at {size}")) for size in sizes]
    text = shown(records, io.StringIO())
    assert "… and 10 more in torchstone_runs/run_1/failed_tests.json" in text


def test_one_line_is_one_line() -> None:
    assert one_line("a\n\tb") == "a b"
    assert one_line("\x1b[0m") == "\\x1b[0m"
    assert len(one_line("x" * 1000, limit=300)) <= 301


def test_numbers_in_texts_sort_as_numbers() -> None:
    assert natural("v2") < natural("v10")


def test_times_and_ratios_are_short() -> None:
    assert [microseconds(ns) for ns in (1_234, 12_345, 123_456, 12_345_678, None)] == [
        "1.23",
        "12.3",
        "123",
        "12,346",
        "–",
    ]
    assert [ratio(value) for value in (1.234, 0.5, 1234.5, None)] == ["1.23x", "0.50x", "1234x", "–"]
