"""Formats the results of benchmark pairs as table cells, for the Markdown page and the terminal."""

from __future__ import annotations

from torchstone.harness.results import BenchmarkResult, PairRecord
from torchstone.harness.summary import Extreme, PairsSummary, is_successful
from torchstone.reports.safe_text import ratio


def milliseconds(value: float | None) -> str:
    """Three significant digits, no exponent."""
    if value is None:
        return "–"
    if value < 0.1:
        return f"{value:.2g}" if value >= 0.001 else f"{value:.6f}"
    return f"{value:.3f}" if value < 1 else f"{value:.2f}" if value < 100 else f"{value:,.0f}"


def median_ms(side: BenchmarkResult) -> str:
    return milliseconds(None if side.timing is None else side.timing.median_ms)


def speedup(record: PairRecord) -> str:
    """The speedup, or a dash for a pair that failed. Its measurements are in the JSON."""
    return ratio(record.comparison.speedup if is_successful(record) else None)


def interval(record: PairRecord) -> str:
    """``1.95 to 2.04``."""
    low, high = record.comparison.speedup_low, record.comparison.speedup_high
    return "–" if low is None or high is None or not is_successful(record) else f"{low:.2f} to {high:.2f}"


def status(record: PairRecord) -> str:
    """The status, with the reason of a skip, the size of a regression, or a note on sequential runs."""
    comparison = record.comparison
    if record.status == "skipped":
        reasons = (side.skip_reason for side in (comparison.baseline, comparison.optimized))
        return f"skipped: {next(filter(None, reasons), 'no reason given')}"
    if record.status == "regression" and comparison.regression_pct is not None:
        return f"regression: {comparison.regression_pct:.1f} % slower"
    return f"{record.status}, taken in sequence" if comparison.taken == "in sequence" else record.status


def overall_lines(summary: PairsSummary) -> list[tuple[str, str]]:
    """Label and value of each line of the overall summary. Counts that are usually 0 are shown only if not 0."""
    lines = [
        ("Chapters tested", f"{summary.chapters_tested}/{summary.chapters_total}"),
        ("Total benchmarks", str(summary.total_benchmarks)),
        ("Successful", str(summary.successful)),
        ("Failed", str(summary.failed)),
    ]
    rare = {"Skipped": summary.skipped, "Not run": summary.not_run, "Regressions": summary.regressions}
    lines += [(label, str(count)) for label, count in rare.items() if count]
    return [
        *lines,
        ("Average speedup", f"{ratio(summary.average_speedup)} (geometric mean)"),
        ("Best speedup", _extreme(summary.best)),
        ("Worst speedup", _extreme(summary.worst)),
    ]


def _extreme(found: Extreme | None) -> str:
    return "–" if found is None else f"{ratio(found.speedup)} ({found.chapter}: {found.example})"
