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
    """Options from which an executor is constructed."""

    device: str = "cpu"
    """``cpu``, ``cuda`` (every visible one) or ``cuda:N``."""
    isolation: IsolationLevel = "best"
    limits: Limits = Limits()
    threads: int = 1
    """Number of CPU threads, the same for candidate and reference."""
    manifest_key: str = ""
    """Key of the run's manifest, which every record has."""
    judges_per_device: int = 1
    """Number of judges that share a device."""
    idle_seconds: float = math.inf
    """A session without work for this long ends its judges, which frees device memory. They start again on demand."""
    slots: int = 1
    """CPU: number of devices that the machine counts as. Each has cores of its own, and all measure concurrently."""
    slot: int | None = None
    """CPU: use only this one of the slots; None: all."""
    results: ResultReading = "read"
    """`copied`: workers copy their results. The judge does not read their memory or use CUDA IPC, even if it could."""
    node: str = ""
    """Name of the machine in records; empty: its host name."""
    address: str = "auto"
    """Address of a cluster, for executors that have one."""
    gpu: str = ""
    """Type of GPU to judge on, for executors that have several: ``H100``. Empty: any, if all are of one type."""


class Answer(NamedTuple):
    """A judged job of a session."""

    job: Job
    record: Record


class Ticket(NamedTuple):
    """Identifies a job in a session. The job's key alone does not include its deadlines."""

    job_key: str
    deadlines: Deadlines
    try_every_case: bool = False


def ticket_of(job: Job) -> Ticket:
    """The ticket of a job. Two jobs with equal tickets are the same work."""
    return Ticket(job.key, job.deadlines, job.try_every_case)


class Session(Protocol):
    """Judges that take jobs at any time. Every job is answered exactly once, in any order, unless it is withdrawn.

    Iterating gives the answers and waits for them. One thread iterates; all other methods are safe from any thread.
    """

    def submit(self, jobs: Iterable[Job]) -> None:
        """Add jobs."""
        ...

    def withdraw(self, jobs: Iterable[Job]) -> list[Job]:
        """Remove the jobs that still wait, and return them. The others are running: they are answered, or are stopped
        if the session can do so."""
        ...

    def finish(self) -> None:
        """Declare that no more jobs come: the iteration ends after the last answer."""
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
    """Brings jobs to judges."""

    def run(self, jobs: Iterable[Job]) -> Iterator[Record]:
        """Judge every job. Yields one record for each job, in any order.

        Closing the iterator stops all work and every process that was started.
        """
        ...

    def open(self) -> Session:
        """Open a session, which accepts jobs at any time."""
        ...


def run_in(session: Session, jobs: Iterable[Job]) -> Iterator[Record]:
    """Judge these jobs in a session, yield their records, and close the session."""
    with session:
        session.submit(jobs)
        session.finish()
        for answer in session:
            yield answer.record


def judge_one(session: Session, job: Job) -> Record:
    """Judge one job in a session that has no other."""
    session.submit((job,))
    return next(session).record


class FakeExecutor:
    """Answers each job with the verdict that a function returns. For tests of code that uses executors."""

    def __init__(self, decide: Callable[[Job], Verdict]) -> None:
        self._decide = decide

    def run(self, jobs: Iterable[Job]) -> Iterator[Record]:
        for job in jobs:
            yield fake_record(job, self._decide(job))

    def open(self) -> FakeSession:
        return FakeSession(self._decide)


class FakeSession:
    """Decides one job after another, in the order in which they came, in the thread that iterates.

    The iteration raises what the function raises, so a test can simulate a failure of the machine.
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
