"""Suite `smoke`: joins the tables of this package in a fixed order, and selects the cases that fit a query."""

from __future__ import annotations

from itertools import chain

from torchstone.errors import UsageError, unknown_name
from torchstone.schema import Case
from torchstone.suites.base import CaseQuery, SuiteSize, names_operator, selects, size_of
from torchstone.suites.smoke import elementwise, indexing_and_views, integers_and_booleans, matrix_operators, reductions
from torchstone.suites.smoke.rows import EXACT, FLOATS, Row

TABLE: tuple[Row, ...] = tuple(
    chain(
        elementwise.rows(),
        reductions.rows(),
        matrix_operators.rows(),
        elementwise.in_place_rows(),
        integers_and_booleans.rows(),
        indexing_and_views.rows(),
    )
)


class SmokeSuite:
    """Every kind of operator once or twice, small enough for a minute on two cores."""

    def cases(self, query: CaseQuery) -> tuple[Case, ...]:
        """The cases that fit the query, grouped by operator.

        Requested floating-point dtypes replace those of the table; cases without floating-point tensors stay as
        they are. A request for integer or bool dtypes alone keeps the cases that use one of them and no float.
        """
        _require_known_operators(query)
        dtypes = _require_known_dtypes(query)
        found = tuple(case for line in TABLE if selects(query, line.case.operator) for case in line.cases(dtypes))
        if dtypes is not None and not found:
            wanted = ", ".join(query.operators) if query.operators else "any operator"
            raise UsageError(
                f"suite 'smoke' has no {', '.join(dtypes)} case of {wanted}. "
                f"Ask for a floating-point dtype ({', '.join(FLOATS)}) or leave the dtype out."
            )
        return found

    def known_size(self, query: CaseQuery) -> SuiteSize:
        """How many operators and cases the query has, from the table."""
        return size_of(case.operator for case in self.cases(query))

    def operators(self, query: CaseQuery) -> tuple[str, ...]:
        """Every operator of the table, whatever the query."""
        del query
        return tuple(dict.fromkeys(line.case.operator for line in TABLE))


def _require_known_operators(query: CaseQuery) -> None:
    known = dict.fromkeys(line.case.operator for line in TABLE)
    unknown = [name for name in query.operators or () if not any(names_operator(name, operator) for operator in known)]
    if unknown:
        kind = "operator" if len(unknown) == 1 else "operators"
        names = (operator.removeprefix("aten.").removesuffix(".default") for operator in known)
        raise unknown_name(f"smoke {kind}", "', '".join(unknown), names)


def _require_known_dtypes(query: CaseQuery) -> tuple[str, ...] | None:
    if query.dtypes is None:
        return None
    for name in query.dtypes:
        if name not in (*FLOATS, *EXACT):
            raise unknown_name("dtype", name, (*FLOATS, *EXACT))
    return tuple(dict.fromkeys(query.dtypes))
