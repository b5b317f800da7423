"""Formats the text of OVERALL_SUMMARY.md: the summary of a run as one Markdown page."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torchstone.reports.case_results import CaseResult
from torchstone.reports.failures import FailureGroup, grouped
from torchstone.reports.operator_summary import OperatorSummary
from torchstone.reports.run_circumstances import circumstance_lines
from torchstone.reports.safe_text import counted, markdown_cell, microseconds, natural, of_limit, ratio
from torchstone.reports.summary import BackendSummary, Scores, Summary

_FACT_CHARACTERS = 2000


def overall_summary(summary: Summary, results: Sequence[CaseResult]) -> str:
    """The text of OVERALL_SUMMARY.md."""
    failures = [_failure(group, summary.compares) for group in grouped(results)]
    parts = [
        "# Torchstone run",
        *_circumstances(summary),
        _backends(summary) if summary.compares else _metrics(summary),
        _verdicts(summary),
        "## Operators",
        _operators(summary),
        *_section("## Cases that did not agree", failures, _with_backend(_FAILURE_HEAD, summary.compares)),
        *_section("## Left out by the suite", _left_out(summary), _LEFT_OUT_HEAD),
        *_section("## Not usable in the backend", _problems(summary), _PROBLEM_HEAD),
        _FILES,
    ]
    return "\n\n".join(parts) + "\n"


_FAILURE_HEAD = "| Operator | Case | Verdict | Why |\n| --- | --- | --- | --- |"
_FACT_HEAD = "| Run | |\n| --- | --- |"
_BACKEND_HEAD = (
    "| Backend | Operators | right | missing | Best on | Correctness | Speedup | Perf@{p} | Cases | Not judged |\n"
    "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- | ---: |"
)
_LEFT_OUT_HEAD = "| Entries | Why they are no case |\n| ---: | --- |"
_PROBLEM_HEAD = "| Where | Why |\n| --- | --- |"
_FILES = """## Files

- `operator_summary.csv`: one line per operator, and per backend where several are compared
- `full_results.json`: one entry per case; times in milliseconds, null where nothing was measured
- `failed_tests.json`: those entries that did not agree
- `records.jsonl`: everything, raw samples included; `manifest.json`: the circumstances
- `plan.json`: how many cases were planned, what the suite left out, and when the run began"""


def _section(title: str, rows: list[str], head: str) -> list[str]:
    return [title, "\n".join((head, *rows))] if rows else []


def _with_backend(head: str, compares: bool) -> str:
    """The head of a table whose second column names the backend where several are compared."""
    if not compares:
        return head
    names, rule = head.split("\n")
    return f"{names.replace('| Operator |', '| Operator | Backend |', 1)}\n{rule.replace('|', '| --- |', 1)}"


def _circumstances(summary: Summary) -> list[str]:
    if summary.run is None:
        return []
    lines = circumstance_lines(summary.run, summary.not_judged)
    return ["\n".join((_FACT_HEAD, *(f"| {name} | {markdown_cell(text, _FACT_CHARACTERS)} |" for name, text in lines)))]


def _backends(summary: Summary) -> str:
    return "\n".join((_BACKEND_HEAD.format(p=f"{summary.p:g}"), *(_backend_line(item) for item in summary.backends)))


def _backend_line(item: BackendSummary) -> str:
    operators = f"{item.operators_total} | {item.operators_right} | {item.operators_missing} | {item.operators_best}"
    scores = f"{_number(item.mean_correctness)} | {ratio(item.geomean_speedup)} | {_number(item.perf_at_p)}"
    return f"| {markdown_cell(item.backend)} | {operators} | {scores} | {_counts(item)} | {item.not_judged} |"


def _counts(scores: Scores) -> str:
    return ", ".join(f"{count} {name}" for name, count in scores.counts.items()) or "none"


def _metrics(summary: Summary) -> str:
    p = f"{summary.p:g}"
    timed = f"the {counted(summary.operators_timed, 'operator')} right and timed"
    rows = (
        _metric("Correctness Score", _number(summary.mean_correctness), "mean of agreeing cases / cases per operator"),
        _metric("Performance Score", ratio(summary.geomean_speedup), f"geometric mean of the speedups of {timed}"),
        _metric(f"Perf@{p} Score", _number(summary.perf_at_p), f"share of all operators right and faster than {p}x"),
        _metric("Operators", str(summary.operators_total), "in the request; missing ones count in every score"),
        _metric("Operators right", str(summary.operators_right), "every case agrees"),
        *_operators_not_judged(summary),
        _metric("Operators missing", str(summary.operators_missing), "the backend offers nothing"),
    )
    return "\n".join(("| Metric | Value | Meaning |", "| --- | --- | --- |", *rows))


def _operators_not_judged(summary: Summary) -> list[str]:
    if not summary.operators_not_judged:
        return []
    meaning = "no case failed, but some have no result yet"
    return [_metric("Operators not judged", str(summary.operators_not_judged), meaning)]


def _metric(name: str, value: str, meaning: str) -> str:
    return f"| {name} | {value} | {meaning} |"


def _verdicts(summary: Summary) -> str:
    types = ", ".join(f"{name}: {count}" for name, count in summary.device_types.items())
    devices = (", ".join(summary.devices) or "none") + (f" ({types})" if len(summary.device_types) > 1 else "")
    missed = f" Not judged: {counted(summary.not_judged, 'case')}." if summary.not_judged else ""
    cases = f"Cases: {summary.cases}: {_counts(summary)}.{missed}"
    return f"{cases}\nDevices: {devices}.\nIsolation in force: {summary.isolation.words}."


def _operators(summary: Summary) -> str:
    """The table of operators, the highest speedup first. Operators without a speedup follow in order of names."""
    ordered = sorted(summary.operators, key=lambda item: (-(item.geomean_speedup or -math.inf), natural(item.operator)))
    head = (
        "| Operator | Correctness Ratio | Speedup vs Eager | 95 % interval | Candidate µs | Reference µs "
        "| Of limit | Reference of limit | Verdicts |"
    )
    rule = "| --- | ---: | ---: | --- | ---: | ---: | --- | ---: | --- |"
    heads = _with_backend(f"{head}\n{rule}", summary.compares)
    return "\n".join((heads, *(_operator_line(item, summary.compares) for item in ordered)))


def _operator_line(item: OperatorSummary, compares: bool) -> str:
    score = "–" if item.correctness is None else f"{item.correctness:.2%}"
    interval = "–" if item.speedup_low is None else f"{item.speedup_low:.2f} to {item.speedup_high:.2f}"
    counts = {**item.counts, **({"not judged": item.not_judged} if item.not_judged else {})}
    verdicts = ", ".join(f"{count} {name}" for name, count in counts.items())
    times = f"{microseconds(item.candidate_ns)} | {microseconds(item.reference_ns)}"
    limit = of_limit(item.of_limit_percent, item.bounds, item.over_limit_cases)
    limits = f"{limit} | {of_limit(item.reference_of_limit_percent, (), 0)}"
    name = markdown_cell(item.operator) + (f" | {markdown_cell(item.backend)}" if compares else "")
    speedup = ratio(item.geomean_speedup) + (" best" if item.best else "")
    return f"| {name} | {score} | {speedup} | {interval} | {times} | {limits} | {verdicts} |"


def _failure(group: FailureGroup, compares: bool) -> str:
    names = (group.operator, group.backend) if compares else (group.operator,)
    return "| " + " | ".join(markdown_cell(cell) for cell in (*names, group.cases, group.verdict, group.reason)) + " |"


def _left_out(summary: Summary) -> list[str]:
    return [f"| {count} | {markdown_cell(reason)} |" for reason, count in summary.left_out.items()]


def _problems(summary: Summary) -> list[str]:
    return [f"| {markdown_cell(item.where)} | {markdown_cell(item.reason)} |" for item in summary.problems]


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
