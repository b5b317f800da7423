"""Prints the report of a run: heading, tables, closing lines. Coloured on a terminal, Markdown tables in a pipe."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from torchstone.measuring import outcome_of
from torchstone.reports.case_results import CaseResult
from torchstone.reports.closing_lines import closing_lines, print_closing
from torchstone.reports.console import fits, make_console, make_table, natural_width, print_line, print_table
from torchstone.reports.failure_text import hanging
from torchstone.reports.failures import FailureGroup, grouped
from torchstone.reports.operator_summary import OperatorSummary
from torchstone.reports.remarks import remarks
from torchstone.reports.report import RunReport
from torchstone.reports.run_circumstances import circumstance_lines
from torchstone.reports.safe_text import counted, microseconds, of_limit, one_line, over_bound, ratio
from torchstone.reports.slowest_cases import seconds_of, slowest, stages_of
from torchstone.reports.summary import Summary

__all__ = ["MOST_FAILURES", "make_console", "render"]

MOST_FAILURES = 50
"""Most rows of the table of failures. The report files have all."""

_WIDEST_IN_PIPE = 140
"""Columns of the widest table of failures in a pipe: about the width of the table of operators."""
_LEAST_TEXT_COLUMNS = 60
"""Fewest characters for case and reason together, however long the names of operators are."""
_FACT_INDENT = 12
_FACT_CHARACTERS = 2000
_STYLES = {
    "agrees": "green",
    "disagrees": "red",
    "cheated": "bold magenta",
    "crashed": "red",
    "timed_out": "yellow",
    "unsupported": "cyan",
    "missing": "dim",
    "unjudged": "bold yellow",
    "not judged": "bold yellow",
    "faster": "green",
    "slower": "red",
}


def render(report: RunReport, folder: Path, console: Console, *, wide: bool = False, durations: int = 0) -> None:
    """Print the heading, the tables of operators, of failures and of the slowest cases, and the closing lines."""
    summary = report.summary
    print_heading(summary, console)
    if summary.compares:
        print_table(console, comparison_table(summary, console), whole=wide)
        console.print()
    print_operators(summary, console, wide=wide)
    groups = grouped(report.results)
    if groups:
        if print_failures(groups[:MOST_FAILURES], console, summary.compares, wide=wide):
            print_line(
                console, f"cut at …; whole: torchstone show {shlex.quote(str(folder))} --case OPERATOR, or --wide"
            )
        if len(groups) > MOST_FAILURES:
            print_line(console, f"… and {len(groups) - MOST_FAILURES} more in {folder / 'failed_tests.json'}")
        console.print()
    if durations:
        print_durations(report.results, durations, console, summary.compares)
    for remark in remarks(report.results, summary.problems, folder):
        for line in hanging(remark, "  ", console.width if console.is_terminal else None):
            print_line(console, Text(line, "yellow"))
    for closing in closing_lines(summary, folder):
        print_closing(console, closing)


def print_heading(summary: Summary, console: Console) -> None:
    """Print date, machine, versions, command and cases that were not judged; nothing for records without a run."""
    if summary.run is None:
        return
    for name, text in circumstance_lines(summary.run, summary.not_judged):
        line = f"{name:<{_FACT_INDENT}}{one_line(text, _FACT_CHARACTERS)}"
        stopped = name == "not judged" and summary.not_judged
        style = _STYLES["not judged"] if stopped else "default"
        for part in _folded(line, console, _FACT_INDENT) if console.is_terminal else [line]:
            print_line(console, Text(part, style))
    console.print()


def _folded(line: str, console: Console, indent: int) -> list[str]:
    """The line in parts that fit the console, all but the first indented."""
    return textwrap.wrap(line, console.width, subsequent_indent=" " * indent, break_on_hyphens=False)


def print_operators(summary: Summary, console: Console, *, wide: bool) -> None:
    """Print one row per operator: all columns if they fit or with ``wide``, otherwise the most important ones.

    If backends are compared, a table that does not fit is left out: the comparison shows verdicts and speeds.
    """
    table = operator_table(summary, console, _ALL_COLUMNS)
    if not wide and not fits(console, table):
        if summary.compares:
            return
        table = operator_table(summary, console, _FEW_COLUMNS)
    print_table(console, table, whole=wide)
    console.print()


def operator_table(summary: Summary, console: Console, columns: dict[str, Callable[[OperatorSummary], Text]]) -> Table:
    """One row per operator, or per operator and backend where several are compared."""
    table = make_table(console, "Operators")
    for name in columns:
        if name == "verdicts" and summary.compares:
            table.add_column("backend", no_wrap=True)
        table.add_column(
            _NAMES_WITH_COMPILE.get(name, name) if summary.compiled_baseline_cases else name,
            justify="right" if name in _NUMBER_COLUMNS else "left",
            no_wrap=name == "operator",
            overflow="fold",
        )
    for item in summary.operators:
        cells = [cell(item) for cell in columns.values()]
        if summary.compares:
            cells.insert(1, Text(one_line(item.backend)))
        table.add_row(*cells)
    return table


def comparison_table(summary: Summary, console: Console) -> Table:
    """One row per operator, one column per backend: the speedup if the operator is right, otherwise its verdicts."""
    table = make_table(console, "Speedup over torch by backend")
    table.add_column("operator", no_wrap=True, overflow="fold")
    names = [item.backend for item in summary.backends]
    for name in names:
        table.add_column(one_line(name), overflow="fold")
    for operator, group in groupby(summary.operators, key=lambda item: item.operator):
        entries = {item.backend: item for item in group}
        cells = [_comparison_cell(entries[name]) if name in entries else Text("–") for name in names]
        table.add_row(Text(one_line(operator)), *cells)
    return table


def _comparison_cell(item: OperatorSummary) -> Text:
    if not item.right:
        return Text("missing", _STYLES["missing"]) if item.missing else _verdict_counts(item)
    if item.geomean_speedup is None:
        return Text("agrees", _STYLES["agrees"])
    return _speedup(item) + Text(" best", "bold green") if item.best else _speedup(item)


def _speedup(item: OperatorSummary) -> Text:
    """``1.23x faster``: the ratio, and whether its interval shows a difference."""
    if item.geomean_speedup is None or item.speedup_low is None or item.speedup_high is None:
        return Text("unresolved" if item.measured_cases else "–", "dim")
    outcome = outcome_of(item.speedup_low, item.speedup_high, item.same_within)
    capped = " capped" if item.capped else ""
    return Text(f"{ratio(item.geomean_speedup)} {outcome}{capped}", _STYLES.get(outcome, "default"))


def _operator_name(item: OperatorSummary) -> Text:
    return Text(one_line(item.operator))


def _short_operator_name(item: OperatorSummary) -> Text:
    """``relu`` for ``aten.relu.default``: rows of a narrow table must not be folded."""
    return Text(one_line(item.operator.removeprefix("aten.").removesuffix(".default")))


def _of_limit(item: OperatorSummary) -> Text:
    """The share of the device's limit that the kernel reaches; in colour if it exceeds the limit."""
    shown = of_limit(item.of_limit_percent, item.bounds, item.over_limit_cases)
    return Text(shown, "bold yellow" if item.over_limit_cases else "default")


def _error(item: OperatorSummary) -> Text:
    return Text(over_bound(item.worst_over_bound))


def _verdict_counts(item: OperatorSummary) -> Text:
    """``12/12 agrees``, with the other verdicts after it."""
    planned = item.cases + item.not_judged
    parts = [Text(f"{item.counts.get('agrees', 0)}/{planned} agrees", "green" if item.right else "default")]
    parts += [Text(text, _STYLES.get(name, "default")) for name, text in _other_verdicts(item.counts, item.not_judged)]
    return Text(", ").join(parts)


def _other_verdicts(counts: dict[str, int], not_judged: int) -> list[tuple[str, str]]:
    """Verdict and ``2 disagrees`` for all but the agreeing cases, those that were not judged last."""
    found = {name: count for name, count in counts.items() if name != "agrees"} | {"not judged": not_judged}
    return [(name, f"{count} {name}") for name, count in found.items() if count]


def _interval(item: OperatorSummary) -> Text:
    if item.speedup_low is None or item.speedup_high is None:
        return Text("unresolved" if item.measured_cases else "–", "dim")
    outcome = outcome_of(item.speedup_low, item.speedup_high, item.same_within)
    unresolved = item.measured_cases - item.resolved_cases
    beside = f" (without {unresolved} unresolved)" if unresolved else ""
    capped = f", capped: {one_line(item.capped[0])}" if item.capped else ""
    interval = f"{item.speedup_low:.2f} to {item.speedup_high:.2f}"
    return Text(f"{interval} {outcome}{beside}{capped}", _STYLES.get(outcome, "default"))


_NUMBER_COLUMNS = ("speedup", "candidate µs", "reference µs", "µs", "error/bound")
_ALL_COLUMNS: dict[str, Callable[[OperatorSummary], Text]] = {
    "operator": _operator_name,
    "verdicts": _verdict_counts,
    "speedup": lambda item: Text(ratio(item.geomean_speedup)),
    "95 % interval": _interval,
    "candidate µs": lambda item: Text(microseconds(item.candidate_ns)),
    "reference µs": lambda item: Text(microseconds(item.reference_ns)),
    "of limit": _of_limit,
    "error/bound": _error,
}
_NAMES_WITH_COMPILE = {"reference µs": "torch.compile µs"}
"""Column -> its name if speed is compared with torch.compile."""
_FEW_COLUMNS: dict[str, Callable[[OperatorSummary], Text]] = {
    "operator": _short_operator_name,
    "verdicts": _verdict_counts,
    "speedup": _speedup,
    "µs": lambda item: Text(microseconds(item.candidate_ns)),
    "error/bound": _error,
}
"""Columns for a narrow terminal: the speedup with its outcome, and the candidate's times alone."""


def print_failures(groups: Sequence[FailureGroup], console: Console, compares: bool, *, wide: bool = False) -> bool:
    """Print a table, or a paragraph for each group on a terminal that is too narrow for the table.

    In a pipe, texts are cut to make the table at most `_WIDEST_IN_PIPE` wide, unless `wide`. Returns whether one was.
    """
    table = failure_table(groups, console, compares)
    if not console.is_terminal:
        cut = not wide and natural_width(console, table) > _WIDEST_IN_PIPE
        print_table(console, _narrow_failure_table(groups, console, compares, table) if cut else table)
        return cut
    if fits(console, table):
        print_table(console, table)
        return False
    print_line(console, Text("Did not agree", "italic"))
    for group in groups:
        backend = f" [{one_line(group.backend)}]" if compares else ""
        what = f"{one_line(group.operator)}{backend}  {one_line(group.cases)}"
        why = f"{group.verdict}: {one_line(group.reason)}"
        for indent, text, style in ((1, what, "default"), (3, why, _STYLES.get(group.verdict, "default"))):
            for line in _folded(" " * indent + text, console, indent + 2):
                print_line(console, Text(line, style))
    return False


def _narrow_failure_table(groups: Sequence[FailureGroup], console: Console, compares: bool, whole: Table) -> Table:
    """The table with the texts of cases and reasons cut. Cases get a third of the width, or what reasons leave free."""
    cases = max(len(one_line(group.cases)) for group in groups)
    reasons = max(len(one_line(group.reason)) for group in groups)
    room = max(_LEAST_TEXT_COLUMNS, _WIDEST_IN_PIPE - (natural_width(console, whole) - cases - reasons))
    for_case = min(cases, max(room // 3, room - reasons))
    return failure_table(groups, console, compares, (for_case, room - for_case))


def failure_table(
    groups: Sequence[FailureGroup], console: Console, compares: bool = False, limits: tuple[int, int] | None = None
) -> Table:
    """A table with one row for each group. Messages of kernels are shown as plain text, whatever they contain.

    `limits`: most characters of a case and of a reason.
    """
    table = make_table(console, "Did not agree")
    table.add_column("operator", no_wrap=True, overflow="fold")
    if compares:
        table.add_column("backend", no_wrap=True)
    table.add_column("case", overflow="fold")
    table.add_column("verdict", no_wrap=True)
    table.add_column("why", overflow="fold")
    for group in groups:
        backend = [Text(one_line(group.backend))] if compares else []
        verdict = Text(group.verdict, _STYLES.get(group.verdict, "default"))
        texts = one_line(group.cases), one_line(group.reason)
        if limits is not None:
            texts = one_line(texts[0], limits[0]), one_line(texts[1], limits[1])
        table.add_row(Text(one_line(group.operator)), *backend, Text(texts[0]), verdict, Text(texts[1]))
    return table


def print_durations(results: Iterable[CaseResult], count: int, console: Console, compares: bool) -> None:
    """Print the slowest cases with the seconds of each stage."""
    records = slowest(results, count)
    if not records:
        print_line(console, "no case took any time: there are no slowest ones")
        return
    stages = stages_of(records)
    table = make_table(console, f"Slowest {counted(len(records), 'case')}, in seconds")
    table.add_column("operator", no_wrap=True, overflow="fold")
    if compares:
        table.add_column("backend", no_wrap=True)
    table.add_column("case", overflow="fold")
    for name in ("seconds", *stages):
        table.add_column(name, justify="right", no_wrap=True)
    for record in records:
        backend = [Text(one_line(record.implementation.backend))] if compares else []
        spent = [seconds_of(record), *(record.stage_seconds.get(stage, 0.0) for stage in stages)]
        names = Text(one_line(record.case.operator)), *backend, Text(one_line(record.case.label))
        table.add_row(*names, *(f"{value:.2f}" for value in spent))
    print_table(console, table)
    console.print()
