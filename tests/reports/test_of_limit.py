"""What reports say about the distance to the device's limit, and the picture of it."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import msgspec
import pytest

import made_records as making
from torchstone.reports import RunReport, make_report
from torchstone.reports.render import make_console, render
from torchstone.reports.roofline import roofline_chart
from torchstone.reports.safe_text import of_limit
from torchstone.schema import Record, SpeedOfLight

RELU, MM, SUM = "aten.relu.default", "aten.mm.default", "aten.sum.default"
MEMORY = SpeedOfLight(10_000, 10_000, 10e9, 100, 2_500, "pointwise", 100e9, "float32")
"""2 µs at least."""
COMPUTE = SpeedOfLight(10_000, 10_000, 10e9, 100, 400_000, "formula", 100e9, "float32")
"""4 µs at least."""
NO_FLOPS = SpeedOfLight(30_000, 0, 10e9, 100)
SVG = "{http://www.w3.org/2000/svg}"
needs_plots = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("altair", "vl_convert")), reason="needs the extra plots"
)


def timed(operator: str, size: int, light: SpeedOfLight | None, candidate_ns: float = 5_000) -> Record:
    measured = msgspec.structs.replace(making.measurement(candidate_ns, 10_000), speed_of_light=light)
    return making.record(of=making.case(operator, size, timed=True), measured=measured)


def entries(report: RunReport) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(report.files["full_results.json"])
    return found


def test_an_operator_tells_its_share_of_the_limit_and_what_sets_it() -> None:
    (operator,) = make_report([timed(RELU, 8, MEMORY), timed(RELU, 9, COMPUTE)]).summary.operators
    assert operator.of_limit_percent == pytest.approx((40 * 80) ** 0.5)
    assert operator.reference_of_limit_percent == pytest.approx((20 * 40) ** 0.5)
    assert operator.bounds == {"compute": 1, "memory": 1}
    assert operator.over_limit_cases == 0


def test_every_report_shows_it() -> None:
    report = make_report([timed(RELU, 8, MEMORY)])
    (entry,) = entries(report)
    assert entry["of_limit_percent"] == pytest.approx(40)
    assert entry["reference_of_limit_percent"] == pytest.approx(20)
    assert (entry["bound"], entry["over_limit"], entry["flops_counted"]) == ("memory", False, "pointwise")
    assert entry["limit_time_ms"] == pytest.approx(0.002)
    assert entry["gigabytes_per_second"] == pytest.approx(4)
    assert entry["gigaflops_per_second"] == pytest.approx(0.5)
    assert (entry["min_bytes"], entry["flops"]) == (20_000, 2_500)
    (row,) = csv.DictReader(io.StringIO(report.files["operator_summary.csv"].decode()))
    assert float(row["of_limit_percent"]) == pytest.approx(40)
    assert (row["bound"], row["over_limit_tests"]) == ("memory", "0")
    assert "| 40 % memory | 20 % |" in report.files["OVERALL_SUMMARY.md"].decode()
    text = io.StringIO()
    render(report, Path("run"), make_console(text))
    assert "40 % memory" in text.getvalue()


def test_more_than_the_limit_is_shown_and_marked() -> None:
    report = make_report([timed(RELU, 8, MEMORY, candidate_ns=1_000)])
    assert report.summary.operators[0].over_limit_cases == 1
    assert "200 % memory over limit" in report.files["OVERALL_SUMMARY.md"].decode()
    assert entries(report)[0]["over_limit"] is True


def test_what_is_not_known_is_null() -> None:
    report = make_report([timed(RELU, 8, None), timed(MM, 8, MEMORY, candidate_ns=1.0), making.record()])
    assert all(entry["of_limit_percent"] is None and entry["bound"] is None for entry in entries(report))
    assert all(item.of_limit_percent is None for item in report.summary.operators)


def test_shares_are_short() -> None:
    shown = [of_limit(None, (), 0), of_limit(63.4, ("memory",), 0), of_limit(0.25, ("latency",), 0)]
    assert shown == ["–", "63 % memory", "0.25 % latency"]
    assert of_limit(113, ("compute", "memory"), 1) == "113 % compute/memory over limit"


def drawn(*records: Record) -> dict[str, Any]:
    """The roofline of these records as Vega-Lite."""
    chart = roofline_chart(make_report(records).results)
    assert chart is not None
    found: dict[str, Any] = chart.to_dict()
    return found


def points(chart: dict[str, Any]) -> list[dict[str, Any]]:
    """The cases in the chart, in the order of their numbers."""
    tables = [json.loads(values) for values in chart["datasets"].values()]
    (cases,) = [rows for rows in tables if rows and "number" in rows[0]]
    return sorted(cases, key=lambda row: int(row["number"]))


@needs_plots
def test_the_picture_has_a_labelled_point_for_every_timed_case_and_the_ceilings() -> None:
    from torchstone.plots.rendering import svg

    records = (timed(RELU, 8, MEMORY), timed(MM, 8, COMPUTE), timed(SUM, 8, NO_FLOPS), making.record())
    chart = roofline_chart(make_report(records).results)
    assert chart is not None
    text = svg(chart).decode()
    assert len(points(chart.to_dict())) == 3
    for words in ("mm T([8], f32): 80 % compute", "relu T([8], f32): 40 % memory", "10.0 GB/s", "float32 100 GFLOP/s"):
        assert f">{words}</text>" in text, words


@needs_plots
def test_points_stand_right_of_less_intensity_and_above_less_speed() -> None:
    records = (timed(RELU, 8, MEMORY), timed(RELU, 9, MEMORY, candidate_ns=2_500), timed(SUM, 8, NO_FLOPS))
    slow, fast, left = points(drawn(*records))
    assert slow["intensity"] == fast["intensity"] > left["intensity"]
    assert fast["reached"] > slow["reached"]
    assert fast["reached"] / fast["allowed"] == pytest.approx(0.8)


@needs_plots
def test_a_point_beyond_its_limit_is_told_apart() -> None:
    over, under = points(drawn(timed(RELU, 8, MEMORY, candidate_ns=1_000), timed(RELU, 9, MEMORY)))
    assert (over["is_over"], under["is_over"]) == (True, False)
    assert over["words"].endswith("200 % memory over limit")


@needs_plots
def test_names_cannot_break_the_picture() -> None:
    from torchstone.plots.rendering import svg

    chart = roofline_chart(make_report([timed("aten.<script>&\x1b.default", 8, MEMORY)]).results)
    assert chart is not None
    root = ElementTree.fromstring(svg(chart).decode())
    assert not list(root.iter(f"{SVG}script"))


@needs_plots
def test_without_a_limit_there_is_no_picture() -> None:
    assert roofline_chart(make_report([timed(RELU, 8, None), making.record()]).results) is None
