"""Session for an executor that has only `run`: passes the waiting jobs to it in batches."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from threading import Condition
from types import TracebackType
from typing import Self

from torchstone.errors import InfrastructureError
from torchstone.executors.base import Answer, Executor, Session, Ticket, ticket_of
from torchstone.schema import Job, Record


def session_of(executor: Executor) -> Session:
    """The executor's own session if it has one, otherwise a BatchSession. An executor needs only `run`."""
    opened: Callable[[], Session] | None = getattr(executor, "open", None)
    return BatchSession(executor) if opened is None else opened()


class BatchSession:
    """See :class:`Session`. After `close`, the iteration ends with the record that the executor is working on."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._changed = Condition()
        self._waiting: dict[Ticket, Job] = {}
        self._finished = self._closed = False
        self._answers = self._batches()

    def submit(self, jobs: Iterable[Job]) -> None:
        with self._changed:
            self._waiting |= {ticket_of(job): job for job in jobs}
            self._changed.notify_all()

    def withdraw(self, jobs: Iterable[Job]) -> list[Job]:
        with self._changed:
            found = [self._waiting.pop(ticket_of(job), None) for job in jobs]
        return [job for job in found if job is not None]

    def finish(self) -> None:
        with self._changed:
            self._finished = True
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        with suppress(ValueError):  # another thread iterates, and finds the session closed
            self._answers.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Answer:
        return next(self._answers)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _batches(self) -> Generator[Answer, None, None]:
        while batch := self._next_batch():
            yield from self._judged(batch)

    def _next_batch(self) -> list[Job]:
        """All waiting jobs; waits until there is one. Empty: the session is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._finished or self._closed)
            batch = [] if self._closed else list(self._waiting.values())
            self._waiting.clear()
        return batch

    def _judged(self, batch: list[Job]) -> Iterator[Answer]:
        """Run the executor on a batch. Raises InfrastructureError unless each job gets one record."""
        expected: dict[str, list[Job]] = {}
        for job in batch:  # jobs that differ only in their deadlines have the same key
            expected.setdefault(job.key, []).append(job)
        records: Iterator[Record] = self._executor.run(batch)
        try:
            for record in records:
                if not expected.get(record.job_key):
                    raise InfrastructureError(f"the executor answered job {record.job_key} unasked or twice.")
                yield Answer(expected[record.job_key].pop(0), record)
                if self._closed:
                    return
        finally:
            close = getattr(records, "close", None)
            if close is not None:
                close()
        missing = sum(map(len, expected.values()))
        if missing:
            raise InfrastructureError(f"the executor ended without an answer for {missing} jobs.")
