"""Judges the corpus of cheats on this machine, and reports for each fixture whether the verdict is as expected.

Cheats are judged like any other kernel, with the normal settings. The gain of a clock trick is measured against an
honest twin in the same session, because an absolute speed depends on the machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from torchstone.errors import UsageError, unknown_name
from torchstone.executors.base import Executor, ExecutorOptions
from torchstone.executors.local import LocalExecutor
from torchstone.measuring import Speedup, timing
from torchstone.redteam.corpus import ENTRY, FASTER, NO_CREDIT, Expectation, Fixture, read_corpus
from torchstone.redteam.fixture_inputs import CASES
from torchstone.schema import (
    Agrees,
    Cheated,
    Crashed,
    Deadlines,
    Disagrees,
    Effort,
    Implementation,
    Job,
    Limits,
    Record,
    SourceFile,
    SourceFiles,
    Unsupported,
    Verdict,
    explain,
    verdict_name,
    with_problem,
)

MOST_CREDIT = 1.10
"""Largest ratio of a cheat's speedup to its honest twin's that is no credit: a busy machine cannot resolve less."""
_CONFIRMATIONS = 2
"""How often a finding about speed is judged again before it counts."""
LIMITS = Limits(memory_bytes=1 << 30, processes=64, scratch_bytes=64 << 20)
"""Limits of a worker. They are small, so that fixtures that exhaust memory or processes reach them early."""
_DEVICE_LIMITS = msgspec.structs.replace(LIMITS, memory_bytes=4 << 30)
"""Limits of a worker on a GPU. The driver needs host memory of its own, more with every captured call. Without it, it
fails with unclear errors."""

Status = Literal["stopped", "no credit", "agrees", "credited", "refused", "uncredited", "other verdict", "unjudged"]
_EXPECTED_STATUSES: tuple[Status, ...] = ("stopped", "no credit", "agrees")


class FixtureResult(msgspec.Struct, frozen=True):
    """What one fixture got on one case."""

    fixture: str
    title: str
    kind: str
    families: tuple[int, ...]
    case: str
    repeat: int
    verdict: str
    """The verdict with its guard, reason or kind: ``cheated/reply``."""
    expected: str
    status: Status
    """`credited`: a cheat agrees, or looks faster than its twin. `refused`: an honest kernel does not agree.
    `uncredited`: an honest kernel is faster, and the verdict does not show it."""
    credit: float | None
    """The fixture's speedup divided by its honest twin's. Above 1: it looks faster than it is. None: not measured."""
    message: str
    seconds: float
    hole: str = ""
    """Why a cheat is known to get credit, or an honest kernel to be refused; empty: that is not allowed."""

    @property
    def as_expected(self) -> bool:
        return self.status in _EXPECTED_STATUSES


def judge_corpus(
    device: str,
    ids: Iterable[str] | None = None,
    repeats: int = 1,
    executor: Executor | None = None,
    effort: Effort = "normal",
) -> Iterator[FixtureResult]:
    """Judge the fixtures for this device (``cpu``, ``cuda`` or ``cuda:N``), and the twins they are measured against."""
    chosen = choose_fixtures(device.partition(":")[0], ids)
    limits = LIMITS if device == "cpu" else _DEVICE_LIMITS
    runner = executor or LocalExecutor(ExecutorOptions(device=device, limits=limits))
    for repeat in range(repeats):
        yield from _judge_with_confirmation(chosen, runner, repeat, effort)


def choose_fixtures(device: str | None, ids: Iterable[str] | None) -> list[Fixture]:
    """The fixtures of these ids (None: all) for ``cpu`` or ``cuda`` (None: both)."""
    corpus = read_corpus()
    wanted = None if ids is None else set(ids)
    known = {fixture.id for fixture in corpus}
    for unknown in sorted((wanted or set()) - known):
        raise unknown_name("fixture", unknown, known, "'torchstone redteam --list'")
    here = (fixture for fixture in corpus if device in (None, fixture.device))
    found = [fixture for fixture in here if wanted is None or fixture.id in wanted]
    if not found:
        raise UsageError(f"none of these fixtures runs on {device}. Choose another --device.")
    return found


def _judge_with_confirmation(
    chosen: list[Fixture], runner: Executor, repeat: int, effort: Effort
) -> Iterator[FixtureResult]:
    """Judge the fixtures, and judge again where the finding is about speed.

    On a busy machine a twin or an honest kernel may be slow once. So such a finding counts only if every repetition
    has it too.
    """
    by_id = {fixture.id: fixture for fixture in chosen}
    for finding in _judge(chosen, runner, repeat, effort):
        confirmed = finding
        for _ in range(_CONFIRMATIONS):
            if confirmed.status != "uncredited" and (confirmed.status != "credited" or confirmed.credit is None):
                break
            repeated = _judge([by_id[finding.fixture]], runner, repeat, effort)
            confirmed = next(found for found in repeated if found.case == finding.case)
        yield confirmed


def _judge(chosen: list[Fixture], runner: Executor, repeat: int, effort: Effort) -> Iterator[FixtureResult]:
    listed = _jobs(chosen, effort)
    jobs = {job.key: (fixture, name) for fixture, name, job in listed}
    records: dict[tuple[str, str], Record] = {}
    wanted = {fixture.id for fixture in chosen}
    for record in runner.run([job for _, _, job in listed]):
        fixture, name = jobs[record.job_key]
        records[fixture.id, name] = record
    for fixture, name in jobs.values():
        if fixture.id in wanted and name in fixture.expected:
            twin = records.get((fixture.twin or "", name))
            yield find(fixture, name, records[fixture.id, name], twin, repeat)


def _jobs(chosen: list[Fixture], effort: Effort) -> list[tuple[Fixture, str, Job]]:
    """A job for every case of the chosen fixtures, and one for the same case of the fixture's twin, if it has one."""
    known = {fixture.id: fixture for fixture in read_corpus()}
    pairs: dict[tuple[str, str], Fixture] = {}
    for fixture in chosen:
        for name in fixture.expected:
            pairs[fixture.id, name] = fixture
            if fixture.twin is not None:
                pairs[fixture.twin, name] = known[fixture.twin]
    return [(fixture, name, _job(fixture, name, effort)) for (_, name), fixture in pairs.items()]


def _job(fixture: Fixture, name: str, effort: Effort) -> Job:
    case = CASES[name]
    origin = SourceFiles((SourceFile(f"{fixture.id}.py", fixture.text),), ENTRY, f"redteam:{fixture.id}")
    if case.model is not None:
        origin = with_problem(origin, case.model)
    seconds = fixture.deadline_seconds
    deadlines = Deadlines() if seconds is None else Deadlines(seconds, seconds, seconds, seconds)
    return Job(case, Implementation("redteam", case.operator, origin), effort, deadlines)


def find(fixture: Fixture, name: str, record: Record, twin: Record | None, repeat: int = 0) -> FixtureResult:
    """Compare the verdict and speed of a fixture on one case with what its header expects."""
    got = describe(record.verdict)
    allowed = fixture.expected[name]
    credit = _credit(record, twin)
    faster = _is_surely_faster_than_twin(record, twin) if fixture.kind == "cheat" else _is_faster(record)
    return FixtureResult(
        fixture=fixture.id,
        title=fixture.title,
        kind=fixture.kind,
        families=fixture.families,
        case=name,
        repeat=repeat,
        verdict=str(got),
        expected=" | ".join(str(expectation) for expectation in allowed),
        status=_status(fixture, got, allowed, faster),
        credit=credit,
        message=explain(record.verdict),
        seconds=round(sum(record.stage_seconds.values()), 3),
        hole=fixture.hole,
    )


def describe(verdict: Verdict) -> Expectation:
    """A verdict in the words of the headers."""
    match verdict:
        case Cheated(guard=detail) | Disagrees(reason=detail) | Crashed(kind=detail) | Unsupported(by=detail):
            return Expectation(verdict_name(verdict), detail)
    return Expectation(verdict_name(verdict))


def _status(fixture: Fixture, got: Expectation, allowed: tuple[Expectation, ...], faster: bool) -> Status:
    if got.verdict in ("unjudged", "missing"):
        return "unjudged"
    if fixture.kind != "cheat":
        slow = FASTER in allowed and not faster
        return "refused" if got.verdict != "agrees" else "uncredited" if slow else "agrees"
    if got.verdict == "agrees":
        if Expectation(NO_CREDIT) in allowed:
            return "credited" if faster else "no credit"
        return "agrees" if Expectation("agrees") in allowed else "credited"
    fits = any(got.verdict == e.verdict and e.detail in ("", got.detail) for e in allowed)
    return "stopped" if fits else "other verdict"


def _credit(record: Record, twin: Record | None) -> float | None:
    mine, truth = _speedup(record), _speedup(twin)
    return None if mine is None or truth is None else mine.ratio / truth.ratio


def _is_surely_faster_than_twin(record: Record, twin: Record | None) -> bool:
    """Whether even the lower end of its speedup exceeds the upper end of its twin's by more than ``MOST_CREDIT``."""
    mine, truth = _speedup(record), _speedup(twin)
    return mine is not None and truth is not None and mine.low > truth.high * MOST_CREDIT


def _is_faster(record: Record) -> bool:
    speedup = _speedup(record)
    return speedup is not None and speedup.outcome == "faster"


def _speedup(record: Record | None) -> Speedup | None:
    if record is None or record.measurement is None or not isinstance(record.verdict, Agrees):
        return None
    return timing(record.measurement).speedup
