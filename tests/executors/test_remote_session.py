"""Sessions whose judges are elsewhere, with judges that fail in every way an infrastructure can."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import msgspec
import pytest
from jobs import RELU, job

from torchstone.errors import InfrastructureError, IsolationUnavailableError, UsageError
from torchstone.executors import ExecutorOptions, fake_record, remote_session
from torchstone.executors.node_judge import Judged, Refused, packed
from torchstone.executors.remote_session import RemoteJudge, RemoteSession
from torchstone.schema import (
    Agrees,
    Case,
    Crashed,
    Deadlines,
    ErrorStatistics,
    Job,
    Normal,
    Record,
    Tensor,
    TimedOut,
    Unjudged,
    decode,
    encode,
)

RIGHT = Agrees(ErrorStatistics(), 1)
Body = Callable[[tuple[Job, ...]], str]


def agree(jobs: tuple[Job, ...]) -> str:
    return encode(Judged(tuple(fake_record(each, RIGHT) for each in jobs))).decode()


class ScriptedJudge:
    """Answers with what a function makes of the jobs, in a thread."""

    def __init__(self, name: str, body: Body, width: int = 1) -> None:
        self.name, self.width, self._body = name, width, body
        self._threads = ThreadPoolExecutor(8)
        self._lock = threading.Lock()
        self.messages: list[tuple[Job, ...]] = []
        self.in_hand = self.most_in_hand = 0

    def judge(self, jobs: str) -> Future[str]:
        listed = decode(jobs, tuple[Job, ...])
        with self._lock:
            self.messages.append(listed)
            self.in_hand += 1
            self.most_in_hand = max(self.most_in_hand, self.in_hand)
        return self._threads.submit(self._work, listed)

    def _work(self, jobs: tuple[Job, ...]) -> str:
        try:
            return self._body(jobs)
        finally:
            with self._lock:
                self.in_hand -= 1


class ScriptedFleet:
    """These judges; one that is lost is gone unless it may come back."""

    def __init__(self, *judges: ScriptedJudge, most_jobs: int = 1, returns: bool = True) -> None:
        self.ready: list[RemoteJudge] = list(judges)
        self.most_jobs, self._returns = most_jobs, returns
        self.faults: list[str] = []
        self.closed = False

    def judges(self, wanted: int) -> Sequence[RemoteJudge]:
        return tuple(self.ready)

    def lost(self, judge: RemoteJudge, why: str) -> None:
        self.faults.append(why)
        self.ready.remove(judge)
        if self._returns:
            self.ready.append(judge)

    def obstacle(self) -> str:
        return "every node is gone"

    def close(self) -> None:
        self.closed = True


def failing(times: int, error: Exception) -> Body:
    """Loses so many messages, then judges."""
    left = iter(range(times))

    def body(jobs: tuple[Job, ...]) -> str:
        if next(left, None) is not None:
            raise error
        return agree(jobs)

    return body


def judged(fleet: ScriptedFleet, jobs: Sequence[Job]) -> list[Record]:
    with RemoteSession(fleet, ExecutorOptions()) as session:
        session.submit(jobs)
        session.finish()
        found = [answer.record for answer in session]
    assert fleet.closed
    assert Counter(record.job_key for record in found) == Counter(each.key for each in jobs), "each exactly once"
    return found


def test_every_job_is_answered_once_by_some_judge() -> None:
    judges = ScriptedJudge("a", agree), ScriptedJudge("b", agree)
    judged(ScriptedFleet(*judges), [job("right", number) for number in range(40)])
    assert all(judge.messages for judge in judges)


def test_no_judge_has_more_in_hand_than_it_may() -> None:
    def slow(jobs: tuple[Job, ...]) -> str:
        time.sleep(0.01)
        return agree(jobs)

    judge = ScriptedJudge("a", slow, width=3)
    judged(ScriptedFleet(judge), [job("right", number) for number in range(20)])
    assert judge.most_in_hand == 3


def test_a_job_that_the_infrastructure_lost_is_judged_elsewhere_and_the_record_counts_it() -> None:
    lossy, steady = ScriptedJudge("lossy", failing(99, RuntimeError("node died"))), ScriptedJudge("steady", agree)
    fleet = ScriptedFleet(lossy, steady, returns=False)
    records = judged(fleet, [job("right", number) for number in range(6)])
    assert len(fleet.faults) == 1
    assert "lossy: RuntimeError: node died" in fleet.faults[0]
    assert sorted(record.attempts for record in records) == [1, 1, 1, 1, 1, 2]
    assert all(isinstance(record.verdict, Agrees) for record in records)


def test_a_job_that_is_lost_every_time_ends_unjudged() -> None:
    unlucky = job("right", 1)

    def body(jobs: tuple[Job, ...]) -> str:
        if jobs[0].key == unlucky.key:
            raise RuntimeError("node died")
        return agree(jobs)

    records = {r.job_key: r for r in judged(ScriptedFleet(ScriptedJudge("a", body)), [unlucky, job("right", 2)])}
    lost = records.pop(unlucky.key)
    assert isinstance(lost.verdict, Unjudged)
    assert "lost 3 times by the infrastructure; the last time on a: RuntimeError: node died" in lost.verdict.reason
    assert lost.attempts == RemoteSession.most_attempts
    assert all(isinstance(record.verdict, Agrees) for record in records.values())


def test_a_crash_of_a_candidate_is_a_verdict_and_never_tried_again() -> None:
    def crash(jobs: tuple[Job, ...]) -> str:
        verdict = Crashed("check", "signal", "died of SIGSEGV", signal="SIGSEGV")
        return encode(Judged(tuple(fake_record(each, verdict) for each in jobs))).decode()

    judge = ScriptedJudge("a", crash)
    (record,) = judged(ScriptedFleet(judge), [job("crashes")])
    assert isinstance(record.verdict, Crashed)
    assert len(judge.messages) == 1


def test_a_kernel_that_timed_out_twice_is_not_sent_again() -> None:
    def hang(jobs: tuple[Job, ...]) -> str:
        verdict = TimedOut("compile", 60.0, 60.0)
        return encode(Judged(tuple(fake_record(each, verdict) for each in jobs))).decode()

    judge = ScriptedJudge("a", hang)
    cases = [Case("test", RELU.operator, (Tensor((5, size), "float32", Normal()),)) for size in range(1, 7)]
    records = judged(ScriptedFleet(judge), [msgspec.structs.replace(job("hangs"), case=case) for case in cases])
    assert len(judge.messages) == 2
    assert [bool(record.verdict.not_tried) for record in records] == [False] * 2 + [True] * 4  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "answer",
    ["no JSON", '{"type":"judged","records":[]}', encode(Refused("InfrastructureError", "out of memory")).decode()],
)
def test_an_answer_without_the_record_is_a_fault(answer: str) -> None:
    answers = iter([answer])
    judge = ScriptedJudge("a", lambda jobs: next(answers, "") or agree(jobs))
    (record,) = judged(ScriptedFleet(judge), [job("right")])
    assert record.attempts == 2


def test_a_record_of_another_job_is_not_taken() -> None:
    other = job("wrong", 7)
    answers = iter([encode(Judged((fake_record(other, RIGHT),))).decode()])
    judge = ScriptedJudge("a", lambda jobs: next(answers, "") or agree(jobs))
    (record,) = judged(ScriptedFleet(judge), [job("right")])
    assert record.job_key == job("right").key


def test_jobs_that_differ_only_in_their_deadlines_get_their_own_records() -> None:
    patient, hurried = job("right"), job("right", deadlines=Deadlines(check_seconds=0.25))
    assert patient.key == hurried.key

    def body(jobs: tuple[Job, ...]) -> str:
        verdicts = (TimedOut("check", 0.25, 0.3) if each.deadlines.check_seconds == 0.25 else RIGHT for each in jobs)
        return encode(Judged(tuple(map(fake_record, jobs, verdicts)))).decode()

    with RemoteSession(ScriptedFleet(ScriptedJudge("a", body), most_jobs=8), ExecutorOptions()) as session:
        session.submit([patient, hurried])
        session.finish()
        found = {answer.job.deadlines.check_seconds: type(answer.record.verdict) for answer in session}
    assert found == {patient.deadlines.check_seconds: Agrees, 0.25: TimedOut}


def test_jobs_of_one_candidate_travel_together_and_a_lost_one_alone() -> None:
    same = [job("right", 1), job("wrong", 1), *(job("right", number) for number in (2, 3))]
    judge = ScriptedJudge("a", failing(1, RuntimeError("container failed")))
    judged(ScriptedFleet(judge, most_jobs=8), same)
    assert all(len({each.implementation.key for each in message}) == 1 for message in judge.messages)
    assert len(judge.messages) == 5


@pytest.mark.parametrize("name", ["nearest", "difflib", "no such name", "KeyError"])
def test_an_error_of_an_unknown_name_is_a_fault(name: str) -> None:
    answers = iter([encode(Refused(name, "out of memory")).decode()])
    judge = ScriptedJudge("a", lambda jobs: next(answers, "") or agree(jobs))
    (record,) = judged(ScriptedFleet(judge), [job("right")])
    assert record.attempts == 2


@pytest.mark.parametrize(
    ("error", "raised"),
    [("UsageError", UsageError), ("IsolationUnavailableError", IsolationUnavailableError)],
)
def test_what_no_other_node_could_do_ends_the_run(error: str, raised: type[Exception]) -> None:
    judge = ScriptedJudge("a", lambda jobs: encode(Refused(error, "not here")).decode())
    with pytest.raises(raised, match="not here"):
        judged(ScriptedFleet(judge), [job("right")])


def test_jobs_that_wait_can_be_withdrawn_and_the_others_are_answered() -> None:
    go = threading.Event()

    def wait(jobs: tuple[Job, ...]) -> str:
        go.wait(10)
        return agree(jobs)

    judge = ScriptedJudge("a", wait)
    jobs = [job("right", number) for number in range(5)]
    with RemoteSession(ScriptedFleet(judge), ExecutorOptions()) as session:
        session.submit(jobs)
        session.finish()
        answers: list[str] = []
        reader = threading.Thread(target=lambda: answers.extend(answer.record.job_key for answer in session))
        reader.start()
        while not judge.messages:
            time.sleep(0.01)
        withdrawn = session.withdraw(jobs)
        go.set()
        reader.join(10)
    assert len(withdrawn) == 4
    assert len(answers) == 1


def test_closing_ends_the_iteration_and_the_fleet() -> None:
    go = threading.Event()
    fleet = ScriptedFleet(ScriptedJudge("a", lambda jobs: str(go.wait(10))))
    session = RemoteSession(fleet, ExecutorOptions())
    session.submit([job("right")])
    answers: list[object] = []
    reader = threading.Thread(target=lambda: answers.extend(session))
    reader.start()
    session.close()
    reader.join(10)
    go.set()
    assert not reader.is_alive()
    assert (answers, fleet.closed) == ([], True)


def test_a_judge_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_session, "_ANSWER_SECONDS", -1e6)
    go, first = threading.Event(), iter([True])

    def body(jobs: tuple[Job, ...]) -> str:
        if next(first, False):
            go.wait(10)
        else:
            monkeypatch.setattr(remote_session, "_ANSWER_SECONDS", 600.0)
        return agree(jobs)

    fleet = ScriptedFleet(ScriptedJudge("a", body, width=2))
    (record,) = judged(fleet, [job("right")])
    go.set()
    assert record.attempts >= 2
    assert "no answer in time" in fleet.faults[0]


def test_without_any_judge_for_long_the_run_ends_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_session, "_PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(remote_session, "_POLL_SECONDS", 0.01)
    with pytest.raises(InfrastructureError, match="no judge was ready for 0 s: every node is gone"):
        judged(ScriptedFleet(), [job("right")])


def test_a_job_travels_as_text_and_comes_back_the_same() -> None:
    jobs = (job("hangs", 3), job("right"))
    assert decode(packed(jobs), tuple[Job, ...]) == jobs
