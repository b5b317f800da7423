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
from torchstone.judge_process.overlapped_work import OverlappedWork
from torchstone.judging import (
    BUDGETS,
    Expected,
    Reference,
    ReferenceFailure,
    arithmetic_device_of,
    has_result_dtypes_of,
    hidden_cases,
    stated_size_cases,
    with_other_numbers,
)

_OTHER_SIZES_PROBABILITY = 0.5
"""Probability that variants have other sizes, if few are checked. Otherwise one has other scalars and nothing else."""


class HiddenVariants:
    """The variants of one job. They are chosen, drawn and evaluated ahead of their calls, while the candidate works."""

    def __init__(self, session: CandidateSession, layout: CallLayout, stated: Expected) -> None:
        self._session, self._layout, self._stated = session, layout, stated
        self._is_bounded = is_bounded(session.job, stated)
        self._evaluated: list[_EvaluatedVariant | None] = []
        """Variants that are evaluated and not called yet; None: torch cannot evaluate the variant."""
        self._prepared = 0

    def choose(self) -> None:
        """Choose the variants. A retry of the job has the same ones."""
        job, randomness = self._session.job, self._session.randomness
        self._generator, size_generator = random.Random(randomness.draw()), random.Random(randomness.draw())
        if randomness.variants is not None:
            return
        budget = BUDGETS[job.effort]
        count = budget.variants_of_proven if _has_passed_many(self._session) else budget.variants
        fewer = count < budget.variants
        stated_only = job.shapes == "stated"
        same_size = (
            []
            if fewer and self._generator.random() < _OTHER_SIZES_PROBABILITY
            else with_other_numbers(job.case, self._generator)
        )
        others = [] if stated_only or (fewer and same_size) else hidden_cases(job.case, count, self._generator)
        of_any_size = [] if stated_only else stated_size_cases(job.case, size_generator)
        of_any_size = size_generator.sample(of_any_size, min(budget.large_variants, len(of_any_size)))
        randomness.variants = [*same_size, *others], of_any_size

    def prepare_next(self) -> None:
        """Draw the next variant's calls and compute their expected results. After the last one, do nothing."""
        variants = self._variants
        if self._prepared < len(variants):
            self._evaluated.append(self._evaluate(variants[self._prepared], calls=2))
            self._prepared += 1

    def check(self, bound: BoundWorker, *, comes_back: bool) -> None:
        """Call the candidate on the variants and compare. ``comes_back``: bind it to the stated case again afterwards.

        If only stated shapes are judged, a variant has other scalars and nothing else. All variants together may take
        as long as a first call and a check, because a first call may compile again.
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
                meanwhile = None if session.resources.shortage.is_watched else OverlappedWork(self.prepare_next)
                passed = self._passes(self._evaluated.pop(0), meanwhile)
                session.resources.variants_passed[job.implementation.key, _has_elements(case)] += passed
            for ways in ways_of_stated_size:
                any(self._passes(self._evaluate(case, calls=1)) for case in ways)
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
        return self._generator.sample(list(found), min(1, len(found))) if self._is_bounded else found

    def _evaluate(self, case: schema.Case, calls: int) -> _EvaluatedVariant | None:
        """Draw and evaluate calls of a variant; the first is compared in full. None: torch refuses the variant, or its
        results have another structure than those of the stated case.
        """
        session, stated = self._session, self._stated
        bounded = self._is_bounded and calls == 1
        try:
            device = session.resources.device
            reference = Reference(case, device, arithmetic_device_of(case, device), stated.batch.reference)
            expected = session.draw_with_planted(reference, calls, stated, bounded=bounded, most_planted=0)
        except (ReferenceFailure, UsageError):
            return None
        return _EvaluatedVariant(case, expected) if has_result_dtypes_of(expected[0], self._layout.outputs) else None

    def _passes(self, evaluated: _EvaluatedVariant | None, meanwhile: OverlappedWork | None = None) -> bool:
        """Whether the candidate passes. False: torch has no answer to compare with. Raises VerdictError if it fails."""
        if evaluated is None:
            return False
        session, (case, expected) = self._session, evaluated
        verified = session.verified
        drawn = [each.call for each in expected]
        with (
            _variant_in_verdict(session, case),
            session.bound_to(case, CallLayout(case, expected[0]), len(drawn)) as bound,
        ):
            session.call_and_verify(bound, drawn, expected, meanwhile)
            session.allow(bound.release)
        return session.verified > verified


class _EvaluatedVariant(NamedTuple):
    """A variant, and its calls with their expected results."""

    case: schema.Case
    expected: list[Expected]


def _has_passed_many(session: CandidateSession) -> bool:
    """Whether the kernel has passed many variants with several elements. If the case has none, others count too."""
    job, passed = session.job, session.resources.variants_passed
    key, many = job.implementation.key, BUDGETS[job.effort].proven_by
    return passed[key, True] >= many or (not _has_elements(job.case) and passed[key, False] >= many)


def _has_elements(case: schema.Case) -> bool:
    """Whether some tensor has more than one element: fewer show nothing about larger tensors."""
    return any(math.prod(recipe.shape) > 1 for recipe in schema.tensors_of(case))


@contextmanager
def _variant_in_verdict(session: CandidateSession, case: schema.Case) -> Iterator[None]:
    """Describe the variant in the verdict on a failure inside, for readers who know only the stated case."""
    try:
        yield
    except VerdictError as early:
        raise VerdictError(verdict_wording.on_variant(early.verdict, session.job.case, case)) from early
    except FAILURES as failure:
        verdict = verdict_wording.on_variant(session.verdict_for(failure), session.job.case, case)
        raise VerdictError(verdict) from failure
