"""OVERALL_SUMMARY.md: the run on one page, for people who open the folder later."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torchstone.reports.summary import CaseResult, OperatorSummary, Summary
from torchstone.reports.text import markdown_cell, microseconds, natural, of_limit, ratio
from torchstone.schema import Record, explain, verdict_name


def overall_summary(summary: Summary, results: Sequence[CaseResult]) -> str:
    """The whole page."""
    failed = [item.record for item in results if verdict_name(item.record.verdict) not in ("agrees", "missing")]
    parts = [
        "# Torchstone run",
        _metrics(summary),
        _verdicts(summary),
        "## Operators",
        _operators(summary),
        *_section("## Cases that did not agree", [_failure(record) for record in failed], _FAILURE_HEAD),
        *_section("## Not usable in the backend", _problems(summary), _PROBLEM_HEAD),
        _FILES,
    ]
    return "\n\n".join(parts) + "\n"


_FAILURE_HEAD = "| Operator | Case | Verdict | Why |\n| --- | --- | --- | --- |"
_PROBLEM_HEAD = "| Where | Why |\n| --- | --- |"
_FILES = """## Files

- `operator_summary.csv`: one line per operator
- `full_results.json`: one entry per case; times in milliseconds, null where nothing was measured
- `failed_tests.json`: those entries that did not agree
- `records.jsonl`: everything, raw samples included; `manifest.json`: the circumstances"""


def _section(title: str, rows: list[str], head: str) -> list[str]:
    return [title, "\n".join((head, *rows))] if rows else []


def _metrics(summary: Summary) -> str:
    p = f"{summary.p:g}"
    timed = f"the {summary.operators_timed} operators that are right and timed"
    rows = (
        _metric("Correctness Score", _number(summary.mean_correctness), "mean of agreeing cases / cases per operator"),
        _metric("Performance Score", ratio(summary.geomean_speedup), f"geometric mean of the speedups of {timed}"),
        _metric(f"Perf@{p} Score", _number(summary.perf_at_p), f"share of all operators right and faster than {p}x"),
        _metric("Operators", str(summary.operators_total), "in the request; missing ones count in every score"),
        _metric("Operators right", str(summary.operators_right), "every case agrees"),
        _metric("Operators missing", str(summary.operators_missing), "the backend offers nothing"),
    )
    return "\n".join(("| Metric | Value | Meaning |", "| --- | --- | --- |", *rows))


def _metric(name: str, value: str, meaning: str) -> str:
    return f"| {name} | {value} | {meaning} |"


def _verdicts(summary: Summary) -> str:
    counts = ", ".join(f"{count} {name}" for name, count in summary.counts.items()) or "none"
    devices = ", ".join(summary.devices) or "none"
    return f"Cases: {summary.cases}: {counts}.\nDevices: {devices}.\nIsolation in force: {summary.isolation.words}."


def _operators(summary: Summary) -> str:
    """Fastest first, by number; those without a speedup after them, by name."""
    ordered = sorted(summary.operators, key=lambda item: (-(item.geomean_speedup or -math.inf), natural(item.operator)))
    head = (
        "| Operator | Correctness Ratio | Speedup vs Eager | 95 % interval | Candidate µs | Reference µs "
        "| Of limit | Reference of limit | Verdicts |"
    )
    rule = "| --- | ---: | ---: | --- | ---: | ---: | --- | ---: | --- |"
    return "\n".join((head, rule, *(_operator_line(item) for item in ordered)))


def _operator_line(item: OperatorSummary) -> str:
    score = "–" if item.correctness is None else f"{item.correctness:.2%}"
    interval = "–" if item.speedup_low is None else f"{item.speedup_low:.2f} to {item.speedup_high:.2f}"
    verdicts = ", ".join(f"{count} {name}" for name, count in item.counts.items())
    times = f"{microseconds(item.candidate_ns)} | {microseconds(item.reference_ns)}"
    limit = of_limit(item.of_limit_percent, item.bounds, item.over_limit_cases)
    limits = f"{limit} | {of_limit(item.reference_of_limit_percent, (), 0)}"
    name = markdown_cell(item.operator)
    return f"| {name} | {score} | {ratio(item.geomean_speedup)} | {interval} | {times} | {limits} | {verdicts} |"


def _failure(record: Record) -> str:
    cells = (record.case.operator, record.case.label, verdict_name(record.verdict), explain(record.verdict))
    return "| " + " | ".join(markdown_cell(cell) for cell in cells) + " |"


def _problems(summary: Summary) -> list[str]:
    return [f"| {markdown_cell(item.where)} | {markdown_cell(item.reason)} |" for item in summary.problems]


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
