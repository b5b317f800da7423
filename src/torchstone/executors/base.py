"""Interfaces: an executor sends jobs to judges; its session takes jobs at any time. Also fakes of both for tests."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from threading import Condition
from types import TracebackType
from typing import NamedTuple, Protocol, Self

import msgspec

from torchstone.schema import Deadlines, Isolation, IsolationLevel, Job, Limits, Record, ResultReading, Verdict


class ExecutorOptions(msgspec.Struct, frozen=True):
    """What an executor is constructed with."""

    device: str = "cpu"
    """``cpu``, ``cuda`` (every visible one) or ``cuda:N``."""
    isolation: IsolationLevel = "best"
    limits: Limits = Limits()
    threads: int = 1
    """CPU threads of the candidate and of the reference alike."""
    manifest_key: str = ""
    """Written into every record."""
    judges_per_device: int = 1
    """Judges that share a device."""
    idle_seconds: float = math.inf
    """A session without work for this long ends its judges, which frees device memory. They start again on demand."""
    slots: int = 1
    """CPU: the machine is taken for so many devices, each with cores of its own, which measure at the same time."""
    slot: int | None = None
    """Only this one of them; None: all."""
    results: ResultReading = "read"
    """`copied`: even where the judge could read results in the candidate's memory, do without, and without CUDA IPC."""
    node: str = ""
    """The machine as records name it; empty: its host name."""
    address: str = "auto"
    """Of a cluster, for executors that have one."""
    gpu: str = ""
    """Type of GPU to judge on, for executors that have several: ``H100``. Empty: any, if all are alike."""


class Answer(NamedTuple):
    """A judged job of a session."""

    job: Job
    record: Record


class Ticket(NamedTuple):
    """What tells jobs of a session apart. The key of a job leaves out how long it may take."""

    job_key: str
    deadlines: Deadlines
    try_every_case: bool = False


def ticket_of(job: Job) -> Ticket:
    """Two jobs with equal tickets are the same work."""
    return Ticket(job.key, job.deadlines, job.try_every_case)


class Session(Protocol):
    """Judges that take jobs at any time. Every job is answered exactly once, in any order, unless it is withdrawn.

    Iterating gives the answers and waits for them. One thread iterates; all other methods are safe from any thread.
    """

    def submit(self, jobs: Iterable[Job]) -> None:
        """Add jobs."""
        ...

    def withdraw(self, jobs: Iterable[Job]) -> list[Job]:
        """Remove those that still wait; returns them. The others are under way: they are answered, or are stopped if
        the session can do so."""
        ...

    def finish(self) -> None:
        """No more jobs come: the iteration ends after the last answer."""
        ...

    def __iter__(self) -> Iterator[Answer]: ...

    def __next__(self) -> Answer:
        """The next answer. Raises `TorchstoneError` if the machine cannot go on; the session must then be closed."""
        ...

    def close(self) -> None:
        """End all work and every process that was started. The iteration ends."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Executor(Protocol):
    """Where jobs run."""

    def run(self, jobs: Iterable[Job]) -> Iterator[Record]:
        """Judge every job. Jobs in, records out, in any order, each exactly once.

        Closing the iterator stops all work and every process that was started.
        """
        ...

    def open(self) -> Session:
        """A session: jobs may come at any time."""
        ...


def run_in(session: Session, jobs: Iterable[Job]) -> Iterator[Record]:
    """The finite use of a session: every record of these jobs. Closes the session."""
    with session:
        session.submit(jobs)
        session.finish()
        for answer in session:
            yield answer.record


def judge_one(session: Session, job: Job) -> Record:
    """One job in a session that has no other."""
    session.submit((job,))
    return next(session).record


class FakeExecutor:
    """Answers each job with the verdict that a function gives. For tests of what lies above executors."""

    def __init__(self, decide: Callable[[Job], Verdict]) -> None:
        self._decide = decide

    def run(self, jobs: Iterable[Job]) -> Iterator[Record]:
        for job in jobs:
            yield fake_record(job, self._decide(job))

    def open(self) -> FakeSession:
        return FakeSession(self._decide)


class FakeSession:
    """Decides one job after another, in the order in which they came, in the thread that iterates.

    What the function raises, the iteration raises: so a test lets the machine fail.
    """

    def __init__(self, decide: Callable[[Job], Verdict]) -> None:
        self._decide = decide
        self._changed = Condition()
        self._waiting: deque[Job] = deque()
        self._finished = self._closed = False

    def submit(self, jobs: Iterable[Job]) -> None:
        with self._changed:
            self._waiting.extend(jobs)
            self._changed.notify_all()

    def withdraw(self, jobs: Iterable[Job]) -> list[Job]:
        tickets = {ticket_of(job) for job in jobs}
        with self._changed:
            found = [job for job in self._waiting if ticket_of(job) in tickets]
            self._waiting = deque(job for job in self._waiting if ticket_of(job) not in tickets)
        return found

    def finish(self) -> None:
        with self._changed:
            self._finished = True
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Answer:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._finished or self._closed)
            if self._closed or not self._waiting:
                raise StopIteration
            job = self._waiting.popleft()
        return Answer(job, fake_record(job, self._decide(job)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def fake_record(job: Job, verdict: Verdict) -> Record:
    """A record of the job with this verdict, from no device."""
    return Record(
        job_key=job.key,
        case=job.case,
        implementation=job.implementation.reference,
        verdict=verdict,
        manifest_key="fake",
        device="fake",
        isolation=Isolation("none"),
        shapes=job.shapes,
    )
