"""WHERE CASES COME FROM."""

from torchstone.suites.base import CaseQuery, ListedSuite, Suite, names_operator, selects

__all__ = ["CaseQuery", "ListedSuite", "Suite", "names_operator", "selects"]
