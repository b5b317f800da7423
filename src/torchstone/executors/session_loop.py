"""The loop that local and remote sessions share: takes jobs at any time, answers each once, gives up on lost ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from threading import Lock
from types import TracebackType
from typing import Self

import msgspec

from torchstone import errors
from torchstone.executors.base import Answer, ExecutorOptions
from torchstone.executors.queue import JobQueue
from torchstone.schema import Isolation, Job, Record, Unjudged, Verdict

MOST_UNJUDGED_IN_A_ROW = 3
"""Candidates: if as many fail one after another, the jobs are not the cause, and the session gives up."""
LASTING = errors.UsageError | errors.IsolationUnavailableError
"""Errors of a judge that every other judge would have too."""


class SessionLoop:
    """The half of a session that knows no judges. See `Session`. All work is done in the thread that iterates."""

    most_attempts = 3
    """Judges that a job may cost; then it ends `unjudged`."""

    def __init__(self, options: ExecutorOptions, queue: JobQueue) -> None:
        self._options, self._queue = options, queue
        self._answers: deque[Answer] = deque()
        self._turn = Lock()
        """Held by the thread that iterates, while it does."""
        self._closed = False
        self._failure: errors.TorchstoneError | None = None
        """Why no more can be judged; raised after the answers that are known."""

    # ---- for each kind of session to say

    def _step(self) -> None:
        """One turn of the loop: give jobs to judges, and wait until one of them says something."""
        raise NotImplementedError

    def _has_in_hand(self) -> bool:
        """Whether some judge is busy with a job."""
        raise NotImplementedError

    def _wake(self) -> None:
        """End the waiting of the loop, from any thread."""
        raise NotImplementedError

    def close(self) -> None:
        """End all judges."""
        raise NotImplementedError

    # ---- the session

    def submit(self, jobs: Iterable[Job]) -> None:
        self._queue.put(jobs)
        self._wake()

    def withdraw(self, jobs: Iterable[Job]) -> list[Job]:
        found = self._queue.withdraw(jobs)
        self._wake()
        return found

    def finish(self) -> None:
        self._queue.close()
        self._wake()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Answer:
        with self._turn:
            while not self._closed:
                if self._answers:
                    return self._answers.popleft()
                if self._failure is not None:
                    raise self._failure
                if self._queue.closed and not self._queue and not self._has_in_hand():
                    break
                self._step_or_fail()
        raise StopIteration

    def _step_or_fail(self) -> None:
        try:
            self._step()
        except errors.TorchstoneError as error:
            self._failure = error

    # ---- answers

    def _answer(self, job: Job, record: Record, place: Mapping[str, str]) -> None:
        """Answer a judged job, and those that are given up because of its verdict. ``place``: see `_without_judge`."""
        given_up = self._queue.judged(job, record.verdict)
        self._answers.append(Answer(job, record))
        self._answers += (Answer(each, self._without_judge(each, why, 0, place)) for each, why in given_up)

    def _put_back_or_give_up(self, job: Job, lost: int, why: str, place: Mapping[str, str]) -> bool:
        """A job that has cost so many judges waits again, or ends `unjudged`. Whether it ended."""
        if lost < self.most_attempts:
            self._queue.put_back(job, lost)
            return False
        self._answer(job, self._without_judge(job, Unjudged(why), lost, place), place)
        return True

    def _without_judge(self, job: Job, verdict: Verdict, attempts: int, place: Mapping[str, str]) -> Record:
        """The record of a job that no judge has answered; ``place`` are its fields about device and machine."""
        record = Record(
            job_key=job.key,
            case=job.case,
            implementation=job.implementation.reference,
            verdict=verdict,
            manifest_key=self._options.manifest_key,
            device=self._options.device,
            isolation=Isolation(self._options.isolation),
            attempts=attempts,
            shapes=job.shapes,
        )
        return msgspec.structs.replace(record, **place)


def error_named(name: str, message: str) -> errors.TorchstoneError:
    """The error that a judge has told by its name; an InfrastructureError if there is no error of this name."""
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, errors.TorchstoneError)):
        kind = errors.InfrastructureError
    return kind(message)
