"""Reports: computes the summaries, files and tables of a run from its records (one per judged case)."""

from torchstone.reports.case_results import CaseResult, evaluate
from torchstone.reports.isolation import IsolationSummary
from torchstone.reports.operator_summary import OperatorSummary
from torchstone.reports.report import RunReport, make_report
from torchstone.reports.summary import Summary, summarise

__all__ = [
    "CaseResult",
    "IsolationSummary",
    "OperatorSummary",
    "RunReport",
    "Summary",
    "evaluate",
    "make_report",
    "summarise",
]
