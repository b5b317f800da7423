"""What an executor is: one method. And a fake for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

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


class FakeExecutor:
    """Answers each job with the verdict that a function gives. For tests of what lies above executors."""

    def __init__(self, decide: Callable[[Job], Verdict]) -> None:
        self._decide = decide

    def run(self, jobs: Iterable[Job]) -> Iterator[Record]:
        for job in jobs:
            yield Record(
                job_key=job.key,
                case=job.case,
                implementation=job.implementation.reference,
                verdict=self._decide(job),
                manifest_key="fake",
                device="fake",
                isolation=Isolation("none"),
            )
