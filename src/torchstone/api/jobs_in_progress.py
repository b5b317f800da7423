"""Tracks the jobs in progress and the submissions that wait for each, so that identical jobs are judged once.

It is not thread-safe: its owner must hold a lock.
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
        """Add a submission. Returns its jobs that are not in progress yet and must be given to the session."""
        new_jobs: list[Job] = []
        for job in submission.jobs:
            ticket = ticket_of(job)
            if ticket not in self._waiting:
                new_jobs.append(job)
            self._waiting.setdefault(ticket, []).append(submission)
        return new_jobs

    def answer(self, job: Job, record: Record) -> list[Submission]:
        """Give a record to the submissions that wait for its job. Returns those that are complete now."""
        ticket = ticket_of(job)
        waiting = self._waiting.pop(ticket, [])
        for submission in waiting:
            submission.records[ticket] = record
        return [submission for submission in waiting if submission.is_complete]

    def remove(self, submission: Submission) -> list[Job]:
        """Remove a cancelled submission. Returns the jobs for which no submission waits any more."""
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
        """Remove every job. Returns the submissions that waited, each once."""
        found = {id(each): each for waiting in self._waiting.values() for each in waiting}
        self._waiting.clear()
        return list(found.values())
