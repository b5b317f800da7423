"""Checks a candidate on hidden variants: the given case with other sizes, memory or scalars, not known to it."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from torchstone import schema
from torchstone.errors import UsageError
from torchstone.judge_process import verdict_wording
from torchstone.judge_process.bound_worker import BoundWorker
from torchstone.judge_process.call_layout import CallLayout
from torchstone.judge_process.candidate_failures import FAILURES, VerdictError
from torchstone.judge_process.candidate_session import CandidateSession
from torchstone.judge_process.large_cases import is_bounded
from torchstone.judge_process.overlapped_work import Meanwhile
from torchstone.judging import (
    BUDGETS,
    Expected,
    Reference,
    ReferenceFailure,
    arithmetic_device_of,
    has_the_kinds_of,
    hidden_cases,
    stated_size_cases,
    with_other_numbers,
)

_OF_OTHER_SIZE = 0.5
"""Chance that, where few variants are checked, they have other sizes. Else one has other scalars and nothing else."""


class HiddenVariants:
    """The variants of one job: chosen, drawn and answered ahead of the calls, while the candidate has other work."""

    def __init__(self, session: CandidateSession, layout: CallLayout, stated: Expected) -> None:
        self._session, self._layout, self._stated = session, layout, stated
        self._is_bounded = is_bounded(session.job, stated)
        self._ready: list[_Answered | None] = []
        """Of the first variants, those that are prepared and not called yet."""
        self._prepared = 0

    def choose(self) -> None:
        """Which variants, once. Drawn from what the system's randomness gives."""
        job, randomness = self._session.job, self._session.randomness
        self._small, large = random.Random(randomness.draw()), random.Random(randomness.draw())
        if randomness.variants is not None:
            return
        budget = BUDGETS[job.effort]
        count = budget.variants_of_proven if _has_passed_many(self._session) else budget.variants
        few = count < budget.variants
        stated_only = job.shapes == "stated"
        same_size = [] if few and self._small.random() < _OF_OTHER_SIZE else with_other_numbers(job.case, self._small)
        others = [] if stated_only or (few and same_size) else hidden_cases(job.case, count, self._small)
        of_any_size = [] if stated_only else stated_size_cases(job.case, large)
        of_any_size = large.sample(of_any_size, min(budget.large_variants, len(of_any_size)))
        randomness.variants = [*same_size, *others], of_any_size

    def prepare_next(self) -> None:
        """Draw the next variant's calls and have torch answer them. Nothing, after the last."""
        variants = self._variants
        if self._prepared < len(variants):
            self._ready.append(self._answered(variants[self._prepared], calls=2))
            self._prepared += 1

    def check(self, bound: BoundWorker, *, comes_back: bool) -> None:
        """Judge the candidate on them. The worker leaves the stated case for them, and may come back to it.

        Where only stated shapes are judged, a variant has other scalars and nothing else. A first call may compile
        again, so each variant may take as long as a first call and a check.
        """
        session, job = self._session, self._session.job
        ways_of_stated_size = self._of_stated_size
        if not self._variants and not ways_of_stated_size:
            return
        with session.clock.in_stage("check", job.deadlines.check_seconds + job.deadlines.compile_seconds):
            session.allow(bound.release)
            for place, case in enumerate(self._variants):
                if self._prepared == place:
                    self.prepare_next()
                beside = None if session.room.shortage.is_watched else Meanwhile(self.prepare_next)
                right = self._is_right(self._ready.pop(0), beside)
                session.room.variants_passed[job.implementation.key, _has_elements(case)] += right
            for ways in ways_of_stated_size:
                any(self._is_right(self._answered(case, calls=1)) for case in ways)
            if comes_back:
                session.allow(bound.bind)

    @property
    def _variants(self) -> Sequence[schema.Case]:
        assert self._session.randomness.variants is not None
        return self._session.randomness.variants[0]

    @property
    def _of_stated_size(self) -> Sequence[Sequence[schema.Case]]:
        assert self._session.randomness.variants is not None
        found = self._session.randomness.variants[1]
        return self._small.sample(list(found), min(1, len(found))) if self._is_bounded else found

    def _answered(self, case: schema.Case, calls: int) -> _Answered | None:
        """The first call is compared in full, others and planted ones as far as need be. None: torch does not take it
        here, or returns something else than in the stated case.
        """
        session, stated = self._session, self._stated
        bounded = self._is_bounded and calls == 1
        try:
            device = session.room.device
            reference = Reference(case, device, arithmetic_device_of(case, device), stated.batch.reference)
            expected = session.draw_with_planted(reference, calls, stated, bounded=bounded, most_planted=0)
        except (ReferenceFailure, UsageError):
            return None
        return _Answered(case, expected) if has_the_kinds_of(expected[0], self._layout.outputs) else None

    def _is_right(self, answered: _Answered | None, meanwhile: Meanwhile | None = None) -> bool:
        """False: torch has no answer, or does not agree with itself. Raises VerdictError if the candidate is wrong."""
        if answered is None:
            return False
        session, (case, expected) = self._session, answered
        verified = session.verified
        drawn = [each.call for each in expected]
        with _naming(session, case), session.standing(case, CallLayout(case, expected[0]), len(drawn)) as bound:
            session.call_and_verify(bound, drawn, expected, meanwhile)
            session.allow(bound.release)
        return session.verified > verified


class _Answered(NamedTuple):
    """A variant with calls that torch has answered."""

    case: schema.Case
    expected: list[Expected]


def _has_passed_many(session: CandidateSession) -> bool:
    """Whether the kernel has passed many variants with elements. For a case without elements, variants without elements
    count.
    """
    job, passed = session.job, session.room.variants_passed
    key, many = job.implementation.key, BUDGETS[job.effort].proven_by
    return passed[key, True] >= many or (not _has_elements(job.case) and passed[key, False] >= many)


def _has_elements(case: schema.Case) -> bool:
    """Whether some tensor has more than one element: being right on fewer shows nothing about more."""
    return any(math.prod(recipe.shape) > 1 for recipe in schema.tensors_of(case))


@contextmanager
def _naming(session: CandidateSession, case: schema.Case) -> Iterator[None]:
    """Whatever goes wrong inside did so on a variant that the reader has not seen."""
    try:
        yield
    except VerdictError as early:
        raise VerdictError(verdict_wording.on_variant(early.verdict, session.job.case, case)) from early
    except FAILURES as failure:
        verdict = verdict_wording.on_variant(session.verdict_for(failure), session.job.case, case)
        raise VerdictError(verdict) from failure
