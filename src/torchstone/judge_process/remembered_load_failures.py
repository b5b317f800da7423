"""Remembers candidates that could not be loaded or built, so that their other cases fail at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from torchstone import schema

if TYPE_CHECKING:
    from torchstone.judge_process.resources import JobOutcome

_MOST_FAILED_LOADS = 64
"""Most candidates whose failure is remembered, each with its log tail. A judge may run for weeks."""


class _FailedLoad(NamedTuple):
    verdict: schema.Verdict
    outcome: JobOutcome
    deadlines: schema.Deadlines
    answered: set[str]
    """Keys of the jobs that have this verdict."""


class RememberedLoadFailures:
    """The load failures of one judge's candidates, by the key of the implementation."""

    def __init__(self) -> None:
        self._known: dict[str, _FailedLoad] = {}

    def remember(self, job: schema.Job, verdict: schema.Verdict, outcome: JobOutcome) -> None:
        """Remember the verdict on the candidate's first case, for its other cases."""
        self._known[job.implementation.key] = _FailedLoad(verdict, outcome, job.deadlines, {job.key})
        while len(self._known) > _MOST_FAILED_LOADS:
            self._known.pop(next(iter(self._known)))

    def verdict_on(self, job: schema.Job) -> tuple[schema.Verdict, JobOutcome] | None:
        """The remembered verdict for this job, or None. A job that comes a second time is tried again."""
        known = self._known.get(job.implementation.key)
        if known is None:
            return None
        if job.key in known.answered or job.deadlines != known.deadlines:
            del self._known[job.implementation.key]
            return None
        known.answered.add(job.key)
        return known.verdict, known.outcome
