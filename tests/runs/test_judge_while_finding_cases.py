"""Cases are judged while a suite still finds others; nothing about the run differs otherwise."""

from __future__ import annotations

import queue
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from test_run import Counted, count

import made_records as making
from torchstone.backends import ListedBackend
from torchstone.errors import InfrastructureError, UsageError
from torchstone.executors import FakeExecutor
from torchstone.runs import RunRequest, SilentObserver, execute
from torchstone.runs.folder import read_plan
from torchstone.runs.plan import JobPlan
from torchstone.runs.run import RunResult
from torchstone.schema import Case, Job, Record, Unjudged, Verdict, verdict_name
from torchstone.suites import CaseQuery, Quiet, selects

NAMES = tuple(f"aten.{name}.default" for name in ("relu", "tanh", "exp", "sin", "cos"))
NO_CASE = "aten.cos.default"
WAIT_SECONDS = 30.0


class SlowSuite:
    """Finds a case each time it is allowed to. The first one is known."""

    def __init__(self, known: tuple[str, ...] = NAMES[:1]) -> None:
        self.known = known
        self.allowed: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self.stopped = False
        self.found: list[str] = []

    def operators(self, query: CaseQuery) -> tuple[str, ...]:
        return tuple(name for name in NAMES if selects(query, name))

    def cases(self, query: CaseQuery) -> Iterator[Case]:
        return (making.case(name) for name in self.operators(query) if name != NO_CASE)

    def arriving(self, query: CaseQuery, quiet: Quiet) -> SlowSuite:
        self.ready = tuple(making.case(name) for name in self.operators(query) if name in self.known)
        self.awaited = tuple(name for name in self.operators(query) if name not in self.known)
        return self

    def __iter__(self) -> Iterator[tuple[str, Case | None]]:
        for name in self.awaited:
            if not self.allowed.get(timeout=WAIT_SECONDS):
                return
            self.found.append(name)
            yield name, None if name == NO_CASE else making.case(name)

    def stop(self) -> None:
        self.stopped = True
        self.allowed.put(False)

    def left_out(self, query: CaseQuery | None = None) -> dict[str, int]:
        return {"cos.py: the model draws random numbers": 1} if NO_CASE in self.found else {}


@dataclass
class Watcher(SilentObserver):
    """Lets the suite find one more case for each record."""

    suite: SlowSuite
    plan: JobPlan | None = None
    records: list[Record] = field(default_factory=list)
    earlier: list[Record] = field(default_factory=list)
    found_by_then: list[int] = field(default_factory=list)
    fewer_cases: int = 0
    warnings: list[str] = field(default_factory=list)
    most: int = 99

    def planned(self, plan: JobPlan, folder: Path) -> None:
        self.plan = plan

    def recorded(self, record: Record) -> None:
        self.records.append(record)
        self.found_by_then.append(len(self.suite.found))
        if len(self.records) >= self.most:
            raise KeyboardInterrupt
        self.suite.allowed.put(True)

    def recorded_earlier(self, record: Record) -> None:
        self.earlier.append(record)

    def fewer(self, count: int) -> None:
        self.fewer_cases += count

    def warned(self, message: str) -> None:
        self.warnings.append(message)


def judged(
    output: Path,
    suite: SlowSuite,
    watcher: Watcher,
    offered: tuple[str, ...] = NAMES,
    executor: object = None,
    **given: object,
) -> RunResult[Counted]:
    request = RunRequest(suite="listed", backend="listed", device="cpu", output_dir=output, run_id="r", **given)  # type: ignore[arg-type]
    return execute(
        request,
        watcher,
        count,
        executor_factory=lambda options: executor or FakeExecutor(lambda job: making.AGREES),  # type: ignore[arg-type,return-value]
        suite=suite,
        backend=ListedBackend(making.implementation(operator) for operator in offered),
    )


def test_a_case_is_judged_before_the_next_one_is_found(tmp_path: Path) -> None:
    suite = SlowSuite()
    watcher = Watcher(suite)
    result = judged(tmp_path, suite, watcher)
    assert watcher.found_by_then == [0, 1, 2, 3]
    assert [record.case.operator for record in result.records] == list(NAMES[:4])
    assert not result.interrupted


def test_the_total_is_known_from_names_and_shrinks_where_there_is_no_case(tmp_path: Path) -> None:
    suite = SlowSuite()
    watcher = Watcher(suite)
    result = judged(tmp_path, suite, watcher)
    assert watcher.plan is not None
    assert (watcher.plan.total, watcher.plan.awaited) == (5, 4)
    assert watcher.fewer_cases == 1
    assert watcher.warnings == ["suite 'listed' leaves out 1: cos.py: the model draws random numbers"]
    planned = read_plan(result.folder)
    assert planned is not None
    assert {each.operator for each in planned.cases} == set(NAMES) - {NO_CASE}
    assert planned.left_out == {"cos.py: the model draws random numbers": 1}


def test_an_interrupted_run_stops_the_suite_and_goes_on_later(tmp_path: Path) -> None:
    suite = SlowSuite()
    first = judged(tmp_path, suite, Watcher(suite, most=2))
    assert first.interrupted
    assert suite.stopped
    assert len(first.records) == 2
    planned = read_plan(first.folder)
    assert planned is not None
    assert {each.operator for each in planned.cases} == set(NAMES)  # those that were not found yet among them
    again = SlowSuite(known=NAMES[:2])
    watcher = Watcher(again)
    for _ in again.known:
        again.allowed.put(True)
    second = judged(tmp_path, again, watcher, resume=True)
    assert watcher.plan is not None
    assert [record.case.operator for record in watcher.plan.done] == list(NAMES[:2])
    assert [record.case.operator for record in watcher.records] == list(NAMES[2:4])
    assert {record.case.operator for record in second.records} == set(NAMES[:4])


def test_what_could_not_be_judged_stays_in_the_result(tmp_path: Path) -> None:
    suite = SlowSuite()
    executor = FakeExecutor(lambda job: Unjudged("no memory") if job.case.operator == NAMES[1] else making.AGREES)
    result = judged(tmp_path, suite, Watcher(suite), executor=executor)
    assert [verdict_name(record.verdict) for record in result.records] == ["agrees", "unjudged", "agrees", "agrees"]
    again = SlowSuite()
    for _ in NAMES:
        again.allowed.put(True)
    second = judged(tmp_path, again, Watcher(again), resume=True)
    assert [verdict_name(record.verdict) for record in second.records] == ["agrees"] * 4


class OnlyRuns:
    """An executor with the one method that it must have."""

    def __init__(self) -> None:
        self.batches: list[int] = []

    def run(self, jobs: Iterable[Job]) -> Iterator[Record]:
        listed = list(jobs)
        self.batches.append(len(listed))
        yield from FakeExecutor(lambda job: making.AGREES).run(listed)


def test_an_executor_needs_no_session(tmp_path: Path) -> None:
    suite, executor = SlowSuite(), OnlyRuns()
    result = judged(tmp_path, suite, Watcher(suite), executor=executor)
    assert [record.case.operator for record in result.records] == list(NAMES[:4])
    assert executor.batches == [1, 1, 1, 1]


def test_an_option_that_means_nothing_to_the_suite_is_refused(tmp_path: Path) -> None:
    suite = SlowSuite()
    with pytest.raises(UsageError, match="no use for --overhead-dominated"):
        judged(tmp_path, suite, Watcher(suite), overhead_dominated=True)
    assert suite.found == []


def test_a_resumed_run_judges_no_case_again_that_its_suite_has_to_find_again(tmp_path: Path) -> None:
    suite = SlowSuite()
    judged(tmp_path, suite, Watcher(suite))
    again = SlowSuite(known=())
    for _ in NAMES:
        again.allowed.put(True)
    asked: list[Job] = []

    def decide(job: Job) -> Verdict:
        asked.append(job)
        return making.AGREES

    watcher = Watcher(again)
    result = judged(tmp_path, again, watcher, executor=FakeExecutor(decide), resume=True)
    assert asked == []
    assert (len(result.records), len(watcher.earlier), watcher.records) == (4, 4, [])


def test_a_case_without_a_kernel_is_missing_when_it_is_found(tmp_path: Path) -> None:
    suite = SlowSuite()
    result = judged(tmp_path, suite, Watcher(suite), offered=NAMES[:2])
    assert [verdict_name(record.verdict) for record in result.records] == ["agrees", "agrees", "missing", "missing"]


def test_the_first_failure_ends_the_search_too(tmp_path: Path) -> None:
    suite = SlowSuite()
    executor = FakeExecutor(lambda job: making.VERDICTS[1])
    result = judged(tmp_path, suite, Watcher(suite), executor=executor, fail_fast=True)
    assert len(result.records) == 1
    assert suite.stopped
    assert result.left_by_fail_fast == 4


def test_a_machine_that_cannot_go_on_ends_the_search_too(tmp_path: Path) -> None:
    def broken(job: Job) -> Verdict:
        raise InfrastructureError("the judge does not start.")

    suite = SlowSuite()
    with pytest.raises(InfrastructureError, match="does not start"):
        judged(tmp_path, suite, Watcher(suite), executor=FakeExecutor(broken))
    assert suite.stopped


def test_a_search_that_fails_ends_the_run(tmp_path: Path) -> None:
    class Failing(SlowSuite):
        def __iter__(self) -> Iterator[tuple[str, Case | None]]:
            raise UsageError("the folder is gone.")

    suite = Failing()
    with pytest.raises(UsageError, match="the folder is gone"):
        judged(tmp_path, suite, Watcher(suite))


def test_a_misspelt_operator_is_refused_before_anything_is_found(tmp_path: Path) -> None:
    suite = SlowSuite()
    with pytest.raises(UsageError, match="rleu"):
        judged(tmp_path, suite, Watcher(suite), operators=("rleu",))
    assert suite.found == []


@pytest.mark.parametrize("given", [{"expression": "tanh"}, {"case_keys": (making.case(NAMES[1]).key,)}])
def test_what_chooses_among_all_cases_waits_for_them(tmp_path: Path, given: dict[str, object]) -> None:
    suite = SlowSuite()
    watcher = Watcher(suite)
    judged(tmp_path, suite, watcher, **given)
    assert watcher.plan is not None
    assert watcher.plan.awaited == 0
    assert NAMES[1] in {record.case.operator for record in watcher.records}


def test_a_suite_without_any_case_is_told_as_ever(tmp_path: Path) -> None:
    suite = SlowSuite(known=())
    suite.allowed.put(True)
    with pytest.raises(UsageError, match="has no case for this request"):
        judged(tmp_path, suite, Watcher(suite), operators=(NO_CASE,))
    planned = read_plan(tmp_path / "r")
    assert planned is not None
    assert planned.cases == ()
    assert planned.parts[-1].ended_unix_ns  # nothing of it is left to go on with
