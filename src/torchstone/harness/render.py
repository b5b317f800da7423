"""Prints the tables of a run over benchmark pairs: in colour on a terminal, plain and never cut in a pipe."""

from __future__ import annotations

import os
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from torchstone.harness import table_cells
from torchstone.harness.report import PairsReport
from torchstone.harness.results import PairRecord
from torchstone.harness.summary import PairsSummary, failure_of, short_name
from torchstone.reports.console import make_table, print_table
from torchstone.reports.safe_text import one_line, ratio

_COLOURS = {
    "succeeded": "green",
    "regression": "yellow",
    "failed": "red",
    "skipped": "cyan",
    "PASS": "green",
    "FAIL": "red",
    "SKIPPED": "cyan",
    "NOT RUN": "yellow",
}


def render(report: PairsReport, folder: Path, console: Console) -> None:
    """Print the pairs, failures, chapters, overall lines and the run's folder."""
    print_table(console, _pairs(report, console))
    console.print()
    failed = [record for record in report.pairs if record.status == "failed"]
    if failed:
        print_table(console, _failures(failed, console))
        console.print()
    print_table(console, _chapters(report.summary, console))
    console.print()
    for label, value in table_cells.overall_lines(report.summary):
        console.print(Text.assemble((f"{label}: ", "bold"), one_line(value)), soft_wrap=True)
    console.print(closing_line(report.summary, folder), soft_wrap=True)


def closing_line(summary: PairsSummary, folder: Path) -> Text:
    """Counts, mean speedup and the run's folder, in one line."""
    counts = {"failed": summary.failed, "skipped": summary.skipped, "not run": summary.not_run}
    counts["regressions"] = summary.regressions
    parts = [f"{summary.total_benchmarks} pairs", f"{summary.successful} successful"]
    parts += [f"{count} {name}" for name, count in counts.items() if count]
    return Text(
        f"{', '.join(parts)} · speedup {ratio(summary.average_speedup)} (geometric mean) · {folder}{os.sep}", "bold"
    )


def _pairs(report: PairsReport, console: Console) -> Table:
    table = make_table(console, "Pairs")
    table.add_column("chapter", no_wrap=True, overflow="fold")
    table.add_column("example", overflow="fold")
    for name in ("baseline ms", "optimized ms", "speedup"):
        table.add_column(name, justify="right")
    table.add_column("95 % interval", no_wrap=True)
    table.add_column("status", overflow="fold")
    for record in report.pairs:
        table.add_row(
            Text(one_line(record.chapter)),
            Text(one_line(short_name(record))),
            table_cells.median_ms(record.comparison.baseline),
            table_cells.median_ms(record.comparison.optimized),
            table_cells.speedup(record),
            table_cells.interval(record),
            Text(one_line(table_cells.status(record)), _COLOURS[record.status]),
        )
    return table


def _failures(records: list[PairRecord], console: Console) -> Table:
    table = make_table(console, "Failures")
    for name in ("pair", "side", "stage"):
        table.add_column(name, no_wrap=True, overflow="fold")
    table.add_column("reason", overflow="fold")
    table.add_column("suggestion", overflow="fold")
    for item in map(failure_of, records):
        parts = (item.name, item.side, item.stage, item.reason, item.suggestion)
        table.add_row(*(Text(one_line(part)) for part in parts))
    return table


def _chapters(summary: PairsSummary, console: Console) -> Table:
    table = make_table(console, "Chapters")
    table.add_column("Chapter", no_wrap=True, overflow="fold")
    table.add_column("Status", no_wrap=True)
    for name in ("Benchmarks", "Successful", "Avg Speedup"):
        table.add_column(name, justify="right")
    for chapter in summary.chapters:
        status = Text(chapter.status, _COLOURS[chapter.status])
        counts = (str(chapter.benchmarks), str(chapter.successful))
        table.add_row(Text(one_line(chapter.chapter)), status, *counts, ratio(chapter.average_speedup))
    return table
