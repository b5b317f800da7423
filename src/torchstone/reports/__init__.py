"""Reports: summaries, files and tables, computed from records. :mod:`torchstone.reports.render` makes the tables."""

from torchstone.reports.isolation import IsolationSummary
from torchstone.reports.report import RunReport, make_report
from torchstone.reports.summary import CaseResult, OperatorSummary, Summary, evaluate, summarise

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
