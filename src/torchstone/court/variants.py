"""Hidden variants: the stated case with other sizes and layouts, which no candidate is told beforehand."""

from __future__ import annotations

import random
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from torchstone import schema
from torchstone.court import wording
from torchstone.court.hearing import FAILURES, Hearing, VerdictError
from torchstone.court.layout import Layout
from torchstone.court.stand import Stand
from torchstone.errors import UsageError
from torchstone.judging import Reference, ReferenceFailure, desk_of, hidden_cases

_HIDDEN_CASES: dict[schema.Effort, int] = {"quick": 4, "normal": 4, "thorough": 10}
"""Of six kinds, so that four hold odd sizes for sure. Each is called twice: in full, and as far as need be."""


def check_hidden(hearing: Hearing, stand: Stand) -> None:
    """Judge the candidate on variants drawn now. The worker leaves the stated case for them and comes back to it.

    A first call may compile again, so each variant may take as long as a first call and a check.
    """
    job = hearing.job
    found = hidden_cases(job.case, _HIDDEN_CASES[job.effort], random.Random(secrets.randbits(64)))
    if not found:
        return
    with hearing.in_stage("check", job.deadlines.check_seconds + job.deadlines.compile_seconds):
        hearing.allow(stand.release)
        for case in found:
            _check_variant(hearing, case)
        hearing.allow(stand.bind)


def _check_variant(hearing: Hearing, case: schema.Case) -> None:
    try:
        reference = Reference(case, hearing.room.device, desk_of(case, hearing.room.device))
        drawn = [hearing.draw(reference, 1, calibrate=in_full) for in_full in (True, False)]
    except (ReferenceFailure, UsageError):  # the CPU takes it, this device does not
        return
    layout = Layout(case, drawn[0][1][0])
    with _naming(hearing, case), hearing.standing(case, layout, 1) as stand:
        for calls, expected in drawn:
            hearing.call_and_verify(stand, calls, expected)
        hearing.allow(stand.release)


@contextmanager
def _naming(hearing: Hearing, case: schema.Case) -> Iterator[None]:
    """Whatever goes wrong inside did so on a variant that the reader has not seen."""
    try:
        yield
    except VerdictError as early:
        raise VerdictError(wording.on_variant(early.verdict, case)) from early
    except FAILURES as failure:
        raise VerdictError(wording.on_variant(hearing.verdict_for(failure), case)) from failure
