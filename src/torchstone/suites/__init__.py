"""Suites: where test cases come from, such as OpInfo, recorded calls of models, or KernelBench."""

from torchstone.suites.base import (
    Arrivals,
    CaseQuery,
    ListedSuite,
    Mode,
    Quiet,
    Suite,
    SuiteSize,
    names_operator,
    selects,
    size_of,
)
from torchstone.suites.selection import (
    input_bytes,
    keep_largest,
    keep_sample,
    known_operators,
    left_out,
    operators_of,
    refuse_unused,
    select_cases,
)

__all__ = [
    "Arrivals",
    "CaseQuery",
    "ListedSuite",
    "Mode",
    "Quiet",
    "Suite",
    "SuiteSize",
    "input_bytes",
    "keep_largest",
    "keep_sample",
    "known_operators",
    "left_out",
    "names_operator",
    "operators_of",
    "refuse_unused",
    "select_cases",
    "selects",
    "size_of",
]
