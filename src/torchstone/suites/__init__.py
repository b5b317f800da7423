"""Suites: where cases come from."""

from torchstone.suites.base import CaseQuery, ListedSuite, Mode, Suite, SuiteSize, names_operator, selects, size_of
from torchstone.suites.selection import (
    input_bytes,
    keep_largest,
    keep_sample,
    known_operators,
    left_out,
    operators_of,
    select_cases,
)

__all__ = [
    "CaseQuery",
    "ListedSuite",
    "Mode",
    "Suite",
    "SuiteSize",
    "input_bytes",
    "keep_largest",
    "keep_sample",
    "known_operators",
    "left_out",
    "names_operator",
    "operators_of",
    "select_cases",
    "selects",
    "size_of",
]
