"""Makes the report of a run from its records, once: the summary, the results of all cases, and the report files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torchstone.backends import Problem
from torchstone.reports.case_results import CaseResult, evaluate
from torchstone.reports.files import report_files
from torchstone.reports.summary import Summary, summarise_results
from torchstone.schema import Record, RunDescription


@dataclass(frozen=True)
class RunReport:
    """The summary of a run, the results from which it was computed, and the report files."""

    summary: Summary
    results: tuple[CaseResult, ...]
    """Every record with its timing, in the order in which reports list them."""
    files: dict[str, bytes]
    """File name -> content, for the run folder."""


def make_report(
    records: Iterable[Record],
    problems: Iterable[Problem] = (),
    description: RunDescription | None = None,
    p: float = 1.0,
) -> RunReport:
    """Make a report from records. The description adds the run's options and machine, and the cases not judged."""
    results = evaluate(records)
    summary = summarise_results(results, problems, description, p)
    return RunReport(summary, results, report_files(summary, results))
