"""WHERE CASES COME FROM."""

from torchstone.suites.base import CaseQuery, ListedSuite, Mode, Suite, names_operator, selects
from torchstone.suites.selection import input_bytes, keep_largest, keep_sample, left_out, operators_of, select_cases

__all__ = [
    "CaseQuery",
    "ListedSuite",
    "Mode",
    "Suite",
    "input_bytes",
    "keep_largest",
    "keep_sample",
    "left_out",
    "names_operator",
    "operators_of",
    "select_cases",
    "selects",
]
