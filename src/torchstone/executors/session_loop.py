"""The loop that local and remote sessions share: takes jobs at any time, answers each once, gives up lost ones."""

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
"""Number of candidates: if this many end unjudged one after another, the jobs are not the cause, and the session raises
an error."""
LASTING = errors.UsageError | errors.IsolationUnavailableError
"""Errors of a judge that every other judge would have, too."""


class SessionLoop:
    """The part of a session that is the same for all kinds of judges. All work is done in the thread that iterates."""

    most_attempts = 3
    """Number of judges that may be lost on a job; then it ends `unjudged`."""

    def __init__(self, options: ExecutorOptions, queue: JobQueue) -> None:
        self._options, self._queue = options, queue
        self._answers: deque[Answer] = deque()
        self._loop_lock = Lock()
        """Held by the iterating thread while it waits for an answer."""
        self._closed = False
        self._failure: errors.TorchstoneError | None = None
        """Why no more jobs can be judged; raised after the answers that are ready."""

    # ---- implemented by each kind of session

    def _step(self) -> None:
        """Make one turn of the loop: give jobs to judges, and wait for a message of one of them."""
        raise NotImplementedError

    def _has_in_hand(self) -> bool:
        """Whether a judge has a job."""
        raise NotImplementedError

    def _wake(self) -> None:
        """End the loop's wait, from any thread."""
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
        with self._loop_lock:
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
        """Put a job back on which ``lost`` judges were lost, or end it `unjudged`; return whether it ended."""
        if lost < self.most_attempts:
            self._queue.put_back(job, lost)
            return False
        self._answer(job, self._without_judge(job, Unjudged(why), lost, place), place)
        return True

    def _without_judge(self, job: Job, verdict: Verdict, attempts: int, place: Mapping[str, str]) -> Record:
        """The record of a job that no judge has answered. ``place``: the record's fields about device and machine."""
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
    """The error of this class name, with which a judge has replied. InfrastructureError if there is no such class."""
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, errors.TorchstoneError)):
        kind = errors.InfrastructureError
    return kind(message)
