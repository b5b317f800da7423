"""Makes the text of `benchmark_test_results.md`: a run over benchmark pairs on one page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torchstone.harness import table_cells
from torchstone.harness.discovery import Problem
from torchstone.harness.plan import PlannedPair
from torchstone.harness.results import PairRecord
from torchstone.harness.summary import ChapterSummary, PairsSummary, failure_of, short_name
from torchstone.reports.safe_text import markdown_cell, ratio


def report_page(
    run_id: str,
    summary: PairsSummary,
    pairs: Sequence[PairRecord],
    not_run: Sequence[PlannedPair],
    problems: Sequence[Problem],
) -> str:
    """The whole page."""
    failed = [failure_of(record) for record in pairs if record.status == "failed"]
    parts = [
        f"# Benchmark Test Results: {markdown_cell(run_id)}",
        "## Overall Summary",
        "\n".join(f"- **{label}:** {markdown_cell(value)}" for label, value in table_cells.overall_lines(summary)),
        "## Per-Chapter Summary",
        _table(
            ("Chapter", "Status", "Benchmarks", "Successful", "Avg Speedup"),
            (_chapter_row(chapter) for chapter in summary.chapters),
        ),
        "## Pairs",
        "Times are medians. The speedup is estimated from turns that the two sides take one after the other, so it can "
        "differ from the ratio of the medians. An interval wholly above 1 says that the optimized side is faster.",
        _table(
            ("Chapter", "Example", "Baseline ms", "Optimized ms", "Speedup", "95 % interval", "Status"),
            (_pair_row(record) for record in pairs),
        ),
        *_section(
            "## Failures",
            ("Pair", "Side", "Stage", "Reason", "Suggestion"),
            [(item.name, item.side, item.stage, item.reason, item.suggestion) for item in failed],
        ),
        *_section("## Not run", ("Pair",), [(pair.name,) for pair in not_run]),
        *_section(
            "## Files in no pair, or with an error",
            ("File", "Reason"),
            [(problem.path, problem.reason) for problem in problems],
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _section(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [title, _table(head, rows)] if rows else []


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([markdown_cell(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _chapter_row(chapter: ChapterSummary) -> tuple[str, ...]:
    counts = (str(chapter.benchmarks), str(chapter.successful))
    return (chapter.chapter, chapter.status, *counts, ratio(chapter.average_speedup))


def _pair_row(record: PairRecord) -> tuple[str, ...]:
    sides = (table_cells.median_ms(side) for side in (record.comparison.baseline, record.comparison.optimized))
    return (
        record.chapter,
        short_name(record),
        *sides,
        table_cells.speedup(record),
        table_cells.interval(record),
        table_cells.status(record),
    )
