"""Hidden variants: the stated case with other sizes and layouts, which no candidate is told beforehand."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from contextlib import contextmanager

from torchstone import schema
from torchstone.errors import UsageError
from torchstone.judge_process import verdict_wording
from torchstone.judge_process.bound_worker import BoundWorker
from torchstone.judge_process.call_layout import CallLayout
from torchstone.judge_process.candidate_session import FAILURES, CandidateSession, VerdictError
from torchstone.judging import (
    Expected,
    Reference,
    ReferenceFailure,
    desk_of,
    has_the_kinds_of,
    hidden_cases,
    stated_size_cases,
    with_other_numbers,
)

_HIDDEN_CASES: dict[schema.Effort, int] = {"quick": 6, "normal": 6, "thorough": 11}
"""Some of kinds that every job gets, the others of any. Each is called twice: in full, and as far as need be."""
_FEWER_CASES: dict[schema.Effort, int] = {"quick": 1, "normal": 6, "thorough": 11}
"""For a candidate that has passed many: its other cases have sizes and layouts of their own."""
_OF_OTHER_SIZE = 0.5
"""Of those few: the others have other numbers and nothing else, if there are any."""
_MANY_PASSED: dict[schema.Effort, int] = {"quick": 12, "normal": 32, "thorough": 32}
"""Variants, of the kind that the case is of: with elements, or without."""


def check_hidden(session: CandidateSession, bound: BoundWorker, stated: Expected, *, comes_back: bool) -> None:
    """Judge the candidate on variants drawn now. The worker leaves the stated case for them, and may come back to it.

    Where only stated shapes are judged, a variant has other scalars and nothing else. A first call may compile again,
    so each variant may take as long as a first call and a check.
    """
    job = session.job
    count = (_FEWER_CASES if _has_passed_many(session) else _HIDDEN_CASES)[job.effort]
    small, large = random.Random(session.randomness.draw()), random.Random(session.randomness.draw())
    if session.randomness.variants is None:
        few = count < _HIDDEN_CASES[job.effort]
        stated_only = job.shapes == "stated"
        same_size = [] if few and small.random() < _OF_OTHER_SIZE else with_other_numbers(job.case, small)
        others = [] if stated_only or (few and same_size) else hidden_cases(job.case, count, small)
        of_any_size = [] if stated_only else stated_size_cases(job.case, large)
        session.randomness.variants = [*same_size, *others], of_any_size
    variants, of_stated_size = session.randomness.variants
    if not variants and not of_stated_size:
        return
    with session.in_stage("check", job.deadlines.check_seconds + job.deadlines.compile_seconds):
        session.allow(bound.release)
        for case in variants:
            right = _check_variant(session, bound.layout, stated, case, calls=2)
            session.room.variants_passed[job.implementation.key, _has_elements(case)] += right
        for ways in of_stated_size:
            any(_check_variant(session, bound.layout, stated, case, calls=1) for case in ways)
        if comes_back:
            session.allow(bound.bind)


def _check_variant(
    session: CandidateSession, layout: CallLayout, stated: Expected, case: schema.Case, calls: int
) -> bool:
    """The first call in full, others and planted ones as far as need be.

    False: torch does not take it here, returns something else than in the stated case, or does not stand by it.
    """
    try:
        device = session.room.device
        reference = Reference(case, device, desk_of(case, device), stated.batch.reference)
        expected = session.draw_with_planted(reference, calls, stated)
    except (ReferenceFailure, UsageError):
        return False
    if not has_the_kinds_of(expected[0], layout.outputs):
        return False
    verified = session.verified
    drawn = [each.call for each in expected]
    with _naming(session, case), session.standing(case, CallLayout(case, expected[0]), len(drawn)) as bound:
        session.call_and_verify(bound, drawn, expected)
        session.allow(bound.release)
    return session.verified > verified


def _has_passed_many(session: CandidateSession) -> bool:
    """Whether the kernel has passed many variants with elements. For a case without elements, variants without elements
    count.
    """
    job, passed = session.job, session.room.variants_passed
    key, many = job.implementation.key, _MANY_PASSED[job.effort]
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
