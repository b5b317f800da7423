"""Tables for people: in colour on a terminal, plain and never cut in a pipe."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from torchstone.measuring import outcome_of
from torchstone.reports.report import RunReport
from torchstone.reports.summary import CaseResult, OperatorSummary, Summary
from torchstone.reports.text import microseconds, of_limit, one_line, ratio
from torchstone.schema import explain, verdict_name

MOST_FAILURES = 50
"""Rows of the table of failures; the rest is in the files."""

_PIPE_WIDTH = 8192
_QUIET = ("agrees", "missing")
_COLOURS = {
    "agrees": "green",
    "disagrees": "red",
    "cheated": "bold magenta",
    "crashed": "red",
    "timed_out": "yellow",
    "unsupported": "cyan",
    "missing": "dim",
    "unjudged": "bold yellow",
    "faster": "green",
    "slower": "red",
}


def make_console(stream: TextIO) -> Console:
    """A console for the stream. `NO_COLOR` is honoured; what is no terminal gets no colour and no line breaks."""
    if stream.isatty():
        return Console(file=stream, highlight=False)
    return Console(file=stream, highlight=False, width=_PIPE_WIDTH, force_terminal=False, no_color=True)


def render(report: RunReport, folder: Path, console: Console) -> None:
    """Print the table of operators, that of failures if there are any, and one closing line."""
    console.print(operator_table(report.summary, console))
    failures = [item for item in report.results if verdict_name(item.record.verdict) not in _QUIET]
    if failures:
        console.print(failure_table(failures[:MOST_FAILURES], console))
    if len(failures) > MOST_FAILURES:
        console.print(f"… and {len(failures) - MOST_FAILURES} more in {folder / 'failed_tests.json'}", soft_wrap=True)
    console.print(closing_line(report.summary, folder), soft_wrap=True)


def operator_table(summary: Summary, console: Console) -> Table:
    """One row per operator."""
    table = make_table("Operators", console)
    table.add_column("operator", no_wrap=True, overflow="fold")
    table.add_column("verdicts")
    table.add_column("speedup", justify="right")
    table.add_column("95 % interval")
    table.add_column("candidate µs", justify="right")
    table.add_column("reference µs", justify="right")
    table.add_column("of limit")
    table.add_column("error/bound", justify="right")
    for item in summary.operators:
        table.add_row(*_operator_cells(item))
    return table


def _operator_cells(item: OperatorSummary) -> tuple[Text, ...]:
    bound = "–" if item.worst_over_bound is None else f"{item.worst_over_bound:.2g}"
    return (
        Text(one_line(item.operator)),
        _verdict_counts(item),
        Text(ratio(item.geomean_speedup)),
        _interval(item),
        Text(microseconds(item.candidate_ns)),
        Text(microseconds(item.reference_ns)),
        _of_limit(item),
        Text(bound),
    )


def _of_limit(item: OperatorSummary) -> Text:
    """How far the kernel is from what the device allows; in colour where that cannot be."""
    shown = of_limit(item.of_limit_percent, item.bounds, item.over_limit_cases)
    return Text(shown, "bold yellow" if item.over_limit_cases else "default")


def _verdict_counts(item: OperatorSummary) -> Text:
    """``12/12 agrees``, with the other verdicts after it."""
    parts = [Text(f"{item.counts.get('agrees', 0)}/{item.cases} agrees", "green" if item.right else "default")]
    parts += [Text(f"{count} {name}", _COLOURS[name]) for name, count in item.counts.items() if name != "agrees"]
    return Text(", ").join(parts)


def _interval(item: OperatorSummary) -> Text:
    if item.speedup_low is None or item.speedup_high is None:
        unresolved = item.measured_cases - item.resolved_cases
        return Text("not resolved" if unresolved else "–", "dim")
    outcome = outcome_of(item.speedup_low, item.speedup_high)
    return Text(f"{item.speedup_low:.2f} to {item.speedup_high:.2f} {outcome}", _COLOURS.get(outcome, "default"))


def failure_table(failures: Sequence[CaseResult], console: Console) -> Table:
    """One row per case that does not agree. Messages of kernels are shown as text, whatever they contain."""
    table = make_table("Did not agree", console)
    table.add_column("operator", no_wrap=True, overflow="fold")
    table.add_column("case", overflow="fold")
    table.add_column("verdict", no_wrap=True)
    table.add_column("why", overflow="fold")
    for item in failures:
        verdict = item.record.verdict
        name = verdict_name(verdict)
        table.add_row(
            Text(one_line(item.record.case.operator)),
            Text(one_line(item.record.case.label)),
            Text(name, _COLOURS[name]),
            Text(one_line(explain(verdict))),
        )
    return table


def make_table(title: str, console: Console) -> Table:
    """A table without columns: titled on a terminal, Markdown in a pipe."""
    if console.is_terminal:
        return Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    return Table(box=box.MARKDOWN)


def closing_line(summary: Summary, folder: Path) -> Text:
    """Counts, missing operators, scores, isolation and where it all lies, in one line."""
    counts = ", ".join(f"{count} {name}" for name, count in summary.counts.items()) or "none"
    wrong = summary.operators_total - summary.operators_right - summary.operators_missing
    parts = (
        f"{summary.operators_total} operators: {summary.operators_right} right, {wrong} not right, "
        f"{summary.operators_missing} missing",
        f"{summary.cases} cases: {counts}",
        f"speedup {ratio(summary.geomean_speedup)}, perf@{summary.p:g} {summary.perf_at_p:.2f}",
        f"isolation: {summary.isolation.words}",
        f"{folder}{os.sep}",
    )
    return Text(" · ".join(parts), "bold")
