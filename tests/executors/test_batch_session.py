"""Executors that have no session: a Judge and a run use them all the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from threading import Event, Thread

import msgspec
import pytest

import made_records as making
from torchstone.api import Judge
from torchstone.errors import InfrastructureError
from torchstone.executors import BatchSession, FakeExecutor, FakeSession, session_of
from torchstone.schema import Deadlines, Job, Record

JOBS = [Job(making.case(f"aten.{name}.default"), making.implementation()) for name in ("relu", "tanh", "exp")]


class OnlyRuns:
    """One method; it remembers what it was asked, and whether it was closed before its end."""

    def __init__(self, answers: int | None = None) -> None:
        self.asked: list[list[Job]] = []
        self.closed = 0
        self._answers = answers

    def run(self, jobs: Iterable[Job]) -> Iterator[Record]:
        listed = list(jobs)
        self.asked.append(listed)
        try:
            yield from FakeExecutor(lambda job: making.AGREES).run(listed[: self._answers])
        finally:
            self.closed += 1


def test_an_executors_own_session_is_taken_where_it_has_one() -> None:
    assert isinstance(session_of(FakeExecutor(lambda job: making.AGREES)), FakeSession)
    assert isinstance(session_of(OnlyRuns()), BatchSession)  # type: ignore[arg-type]


def test_what_waits_is_one_batch_and_what_comes_later_the_next() -> None:
    executor = OnlyRuns()
    with BatchSession(executor) as session:  # type: ignore[arg-type]
        session.submit(JOBS[:2])
        assert [next(session).job for _ in range(2)] == JOBS[:2]
        session.submit(JOBS[2:])
        session.finish()
        assert [answer.job for answer in session] == JOBS[2:]
    assert executor.asked == [JOBS[:2], JOBS[2:]]


def test_only_what_waits_can_be_withdrawn() -> None:
    with BatchSession(OnlyRuns()) as session:  # type: ignore[arg-type]
        session.submit(JOBS[:1])
        next(session)
        session.submit(JOBS[1:])
        assert session.withdraw([JOBS[0], JOBS[2]]) == [JOBS[2]]
        session.finish()
        assert [answer.job for answer in session] == [JOBS[1]]


def test_closing_ends_the_executors_work() -> None:
    executor = OnlyRuns()
    session = BatchSession(executor)  # type: ignore[arg-type]
    session.submit(JOBS)
    next(session)
    session.close()
    assert executor.closed == 1
    assert list(session) == []


def test_another_thread_that_waits_for_work_sees_the_end() -> None:
    session, ended = BatchSession(OnlyRuns()), Event()  # type: ignore[arg-type]
    thread = Thread(target=lambda: (list(session), ended.set()))
    thread.start()
    session.close()
    assert ended.wait(10.0)
    thread.join()


def test_a_job_without_an_answer_is_told() -> None:
    with BatchSession(OnlyRuns(answers=1)) as session:  # type: ignore[arg-type]
        session.submit(JOBS)
        assert next(session).job == JOBS[0]
        with pytest.raises(InfrastructureError, match="without an answer for 2 jobs"):
            next(session)


def test_jobs_that_differ_only_in_how_long_they_may_take_are_both_answered() -> None:
    patient = msgspec.structs.replace(JOBS[0], deadlines=Deadlines(compile_seconds=600))
    stubborn = msgspec.structs.replace(JOBS[0], try_every_case=True)
    with BatchSession(OnlyRuns()) as session:  # type: ignore[arg-type]
        session.submit([JOBS[0], patient, stubborn])
        session.finish()
        assert [answer.job for answer in session] == [JOBS[0], patient, stubborn]


def test_an_answer_that_comes_twice_is_told() -> None:
    class Repeats(OnlyRuns):
        def run(self, jobs: Iterable[Job]) -> Iterator[Record]:
            for record in super().run(jobs):
                yield from (record, record)

    with BatchSession(Repeats()) as session:  # type: ignore[arg-type]
        session.submit(JOBS)
        assert next(session).job == JOBS[0]
        with pytest.raises(InfrastructureError, match="unasked or twice"):
            next(session)


def test_a_judge_takes_an_executor_that_only_runs() -> None:
    executor = OnlyRuns()
    with Judge(device="cpu", cases=[making.case()], executor=executor) as judge:  # type: ignore[arg-type]
        found = judge.check("def relu_kernel_impl(self):\n    return self.relu()\n", "relu")
    assert found.agrees
    assert [len(batch) for batch in executor.asked] == [1]
