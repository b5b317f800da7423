"""The protocol of an executor, a session that judges jobs one by one, and a fake for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Protocol, Self

import msgspec

from torchstone.schema import Isolation, IsolationLevel, Job, Limits, Record, Verdict


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


class Executor(Protocol):
    """Where jobs run. Jobs in, records out, in any order, each exactly once."""

    def run(self, jobs: Iterable[Job]) -> Iterator[Record]:
        """Judge every job. Closing the iterator stops all work and every process that was started."""
        ...


class Session(Protocol):
    """Jobs one by one, each given when the record of the last is known. Left like any context."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def judge(self, job: Job) -> Record:
        """One job. What the machine could not do is `Unjudged`, or an `InfrastructureError`."""
        ...


class FakeExecutor:
    """Answers each job with the verdict that a function gives. For tests of what lies above executors."""

    def __init__(self, decide: Callable[[Job], Verdict]) -> None:
        self._decide = decide

    def run(self, jobs: Iterable[Job]) -> Iterator[Record]:
        for job in jobs:
            yield self.judge(job)

    def session(self) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def judge(self, job: Job) -> Record:
        return Record(
            job_key=job.key,
            case=job.case,
            implementation=job.implementation.reference,
            verdict=self._decide(job),
            manifest_key="fake",
            device="fake",
            isolation=Isolation("none"),
            shapes=job.shapes,
        )
