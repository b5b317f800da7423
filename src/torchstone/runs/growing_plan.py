"""Extends the plan of a run as its cases become known: finds the backends' kernels for them, and makes the jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from torchstone.backends import Backend
from torchstone.runs import folder as folders
from torchstone.runs.choose_cases_and_kernels import Offers, choose_implementations
from torchstone.runs.plan import JobPlan, Terms, join, make_plan, planned_cases
from torchstone.runs.request import RunRequest
from torchstone.schema import Case, Implementation, PlannedCases, Record


class GrowingPlan:
    """The cases of a run, in the order in which they were found."""

    def __init__(
        self, request: RunRequest, device: str, backends: Mapping[str, Backend], awaited: Sequence[str] = ()
    ) -> None:
        """``awaited``: operators whose case is not found yet."""
        self._request, self._device, self._backends = request, device, backends
        self.cases: list[Case] = []
        self.awaited = list(awaited)
        self._offers: dict[str, Offers] = {name: {} for name in backends}
        self._manifest_key = ""
        self._held: tuple[Record, ...] = ()
        self._folder: Path | None = None

    def add(self, cases: Sequence[Case]) -> None:
        """Add cases. After :meth:`begin`, their kernels' sources are written to the run folder."""
        self.cases += cases
        for name, made in self._backends.items():
            self._offers[name] |= _named(name, choose_implementations(tuple(cases), made), self._backends)
        if self._folder is not None:
            folders.keep_sources(self._folder, self.implementations())

    def begin(self, manifest_key: str, held: tuple[Record, ...], folder: Path) -> None:
        """Must be called before jobs are made. ``held``: the records of earlier parts of the run."""
        self._manifest_key, self._held, self._folder = manifest_key, held, folder

    def of(self, cases: Sequence[Case]) -> JobPlan:
        """The plan of some of the cases."""
        return join(self._plans(cases))

    def whole(self) -> JobPlan:
        """The plan of all cases, including the awaited ones."""
        return msgspec.structs.replace(self.of(self.cases), awaited=len(self.awaited) * len(self._backends))

    def counts(self) -> tuple[PlannedCases, ...]:
        """How many cases are planned for each backend and operator. An awaited operator counts as one case."""
        expected = (PlannedCases(name, operator, 1) for name in self._backends for operator in self.awaited)
        return (*planned_cases(self._plans(self.cases)), *expected)

    def found_none(self, operator: str) -> int:
        """Remove an awaited operator that has no case. Returns by how many cases the plan is shorter."""
        self.awaited.remove(operator)
        return len(self._backends)

    def found(self, operator: str, case: Case) -> JobPlan:
        """Add the case that was found for this operator, and return the plan of this case."""
        self.awaited.remove(operator)
        self.add((case,))
        return self.of((case,))

    def implementations(self) -> Iterator[Implementation | None]:
        """The kernels of all backends for all operators; None if a backend has none for an operator."""
        return (offer for offered in self._offers.values() for offer in offered.values())

    def _plans(self, cases: Sequence[Case]) -> list[JobPlan]:
        return [
            make_plan(cases, offered, self._terms(name), self._held, getattr(self._backends[name], "why_missing", None))
            for name, offered in self._offers.items()
        ]

    def _terms(self, backend: str) -> Terms:
        request = self._request
        return Terms(
            backend=backend,
            effort=request.effort,
            deadlines=request.deadlines,
            measured=request.measured,
            require_authored=request.require_authored,
            cache=request.cache,
            shapes=request.shapes,
            non_finite=request.non_finite,
            try_every_case=request.try_every_case,
            baseline=request.baseline,
            device=self._device,
            isolation=request.isolation,
            manifest_key=self._manifest_key,
        )


def _named(backend: str, offers: Offers, all_backends: Mapping[str, Backend]) -> Offers:
    """With several backends, give each implementation the backend name that the request uses."""
    if len(all_backends) == 1:
        return offers
    return {
        operator: None if offer is None else msgspec.structs.replace(offer, backend=backend)
        for operator, offer in offers.items()
    }
