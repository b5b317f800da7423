"""Chooses what a run judges: the cases that a request selects, and a backend's kernel for each operator."""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec

from torchstone.backends import Backend, Problem
from torchstone.errors import UsageError, unknown_name
from torchstone.runs.devices import device_type
from torchstone.runs.request import RunRequest
from torchstone.schema import Case, Implementation, SourceFiles, forward_operator, is_gradient, with_problem
from torchstone.suites import CaseQuery, Suite, names_operator, operators_of, select_cases

Offers = dict[str, Implementation | None]
"""By operator, the implementation that a backend offers; None: it has none."""


def choose_cases(request: RunRequest, device: str, suite: Suite) -> tuple[Case, ...]:
    """The cases that the request selects. Raises UsageError if there is none, or none of a requested operator."""
    query = query_of(request, device)
    cases = select_cases(request.suite, suite, query)
    for name in request.operators or ():
        if not any(names_operator(name, case.operator) for case in cases):
            _refuse_operator(name, query, suite, request.suite)
    require_some(request, cases)
    return cases


def require_some(request: RunRequest, cases: Collection[Case]) -> None:
    """Refuse a request that selects no case."""
    if not cases:
        raise UsageError(_no_case(request))


def _no_case(request: RunRequest) -> str:
    if request.case_keys is not None:
        return (
            f"no case that failed ({len(request.case_keys)}) is in this selection of suite '{request.suite}'. "
            "Ask with the options of that run, or leave out --last-failed."
        )
    if request.expression is not None:
        return (
            f"no case of suite '{request.suite}' fits -k '{request.expression}'. Its words must be parts of an "
            f"operator's name or of arguments; 'torchstone list operators --suite {request.suite}' lists operators."
        )
    return f"suite '{request.suite}' has no case for this request. Ask for other dtypes or operators."


def query_of(request: RunRequest, device: str) -> CaseQuery:
    """The part of the request that is about cases."""
    return CaseQuery(
        request.operators,
        request.dtypes,
        device_type(device),
        request.source,
        request.largest,
        request.sample,
        request.overhead_dominated,
        request.mode,
        expression=request.expression,
        keys=request.case_keys,
    )


def _refuse_operator(name: str, query: CaseQuery, suite: Suite, suite_name: str) -> None:
    """Raise UsageError, unless the suite has cases of the operator and only an expression or keys exclude them."""
    if any(names_operator(name, case.operator) for case in suite.cases(query)):
        return
    known = operators_of(suite, msgspec.structs.replace(query, operators=None, dtypes=None))
    if any(names_operator(name, operator) for operator in known):
        dtypes = f" in {', '.join(query.dtypes)}" if query.dtypes else ""
        raise UsageError(f"operator '{name}' has no case{dtypes}. Ask for other dtypes or operators.")
    raise unknown_name("operator", name, known, f"'torchstone list operators --suite {suite_name}'")


def choose_implementations(cases: tuple[Case, ...], backend: Backend) -> Offers:
    """The backend's implementation for each operator of the cases; for a gradient, that of the forward operator."""
    by_operator = {case.operator: case for case in reversed(cases)}
    return {operator: _offer(backend, by_operator[operator]) for operator in dict.fromkeys(c.operator for c in cases)}


def _offer(backend: Backend, case: Case) -> Implementation | None:
    offer: Callable[[str], Implementation | None] = backend.implementation
    if is_gradient(case.operator):  # some backends offer another implementation for differentiating than for calling
        offer = getattr(backend, "differentiable", offer)
    offered = offer(forward_operator(case.operator))
    if offered is None:
        return None
    if case.model is not None:  # for a model, torch itself offers the problem's own model
        solution = offered.origin if isinstance(offered.origin, SourceFiles) else None
        offered = msgspec.structs.replace(offered, origin=with_problem(solution, case.model))
    return msgspec.structs.replace(offered, operator=case.operator)


def problems_of(backend: Backend) -> tuple[Problem, ...]:
    """Kernels and files that the backend could not use. Backends without a method `problems` have none."""
    method = getattr(backend, "problems", None)
    return tuple(method()) if callable(method) else ()
