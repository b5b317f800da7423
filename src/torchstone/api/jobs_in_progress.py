"""Tracks the jobs in progress and the submissions that wait for each, so that identical jobs are judged once.

Not safe from several threads by itself: its owner holds a lock.
"""

from __future__ import annotations

from torchstone.api.jobs_for_kernels import Submission
from torchstone.executors import Ticket, ticket_of
from torchstone.schema import Job, Record


class JobsInProgress:
    """Each job in progress, with the submissions that wait for it."""

    def __init__(self) -> None:
        self._waiting: dict[Ticket, list[Submission]] = {}

    def __len__(self) -> int:
        """Number of jobs in progress."""
        return len(self._waiting)

    def add(self, submission: Submission) -> list[Job]:
        """Returns the jobs that are new, and must be given to the session."""
        new: list[Job] = []
        for job in submission.jobs:
            ticket = ticket_of(job)
            if ticket not in self._waiting:
                new.append(job)
            self._waiting.setdefault(ticket, []).append(submission)
        return new

    def answer(self, job: Job, record: Record) -> list[Submission]:
        """A job is judged: returns the submissions that are complete now. A job that nobody waits for is ignored."""
        ticket = ticket_of(job)
        waiting = self._waiting.pop(ticket, [])
        for submission in waiting:
            submission.records[ticket] = record
        return [submission for submission in waiting if submission.is_complete]

    def remove(self, submission: Submission) -> list[Job]:
        """A submission was cancelled: returns the jobs that nobody waits for any more."""
        unwanted: list[Job] = []
        for job in submission.jobs:
            waiting = self._waiting.get(ticket_of(job), [])
            if submission in waiting:
                waiting.remove(submission)
                if not waiting:
                    del self._waiting[ticket_of(job)]
                    unwanted.append(job)
        return unwanted

    def clear(self) -> list[Submission]:
        """Forget every job; returns the submissions that waited, each once."""
        found = {id(each): each for waiting in self._waiting.values() for each in waiting}
        self._waiting.clear()
        return list(found.values())
