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
"""A cheat may look this much faster than its honest twin: less is not told apart on a busy machine."""
_CONFIRMATIONS = 2
LIMITS = Limits(memory_bytes=1 << 30, processes=64, scratch_bytes=64 << 20)
"""Small, so that the bombs among the fixtures burst early."""
_DEVICE_LIMITS = msgspec.structs.replace(LIMITS, memory_bytes=4 << 30)
"""On a GPU the driver needs host memory of its own, more with every captured call, and fails strangely without it."""

Status = Literal["stopped", "no credit", "agrees", "credited", "refused", "uncredited", "other verdict", "unjudged"]
_GOOD: tuple[Status, ...] = ("stopped", "no credit", "agrees")


class FixtureResult(msgspec.Struct, frozen=True):
    """What one fixture got on one case."""

    fixture: str
    title: str
    kind: str
    families: tuple[int, ...]
    case: str
    repeat: int
    verdict: str
    """With its guard, reason or kind: ``cheated/reply``."""
    expected: str
    status: Status
    """`credited`: a cheat agrees, or looks faster than its twin. `refused`: an honest kernel does not agree.
    `uncredited`: an honest kernel is faster, and the verdict does not show it."""
    credit: float | None
    """Speed over the honest twin's, where both were measured. Above 1: looks faster than it is."""
    message: str
    seconds: float
    hole: str = ""
    """Why a cheat is known to get credit; empty: it must not."""

    @property
    def as_expected(self) -> bool:
        return self.status in _GOOD


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
        yield from _judge_once(chosen, runner, repeat, effort)


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


def _judge_once(chosen: list[Fixture], runner: Executor, repeat: int, effort: Effort) -> Iterator[FixtureResult]:
    """Judge, and repeat findings about speed: on a busy machine a twin may be slow once, or an honest kernel.

    A finding counts only if it comes again.
    """
    by_id = {fixture.id: fixture for fixture in chosen}
    for finding in _judge(chosen, runner, repeat, effort):
        again = finding
        for _ in range(_CONFIRMATIONS):
            if again.status != "uncredited" and (again.status != "credited" or again.credit is None):
                break
            tries = _judge([by_id[finding.fixture]], runner, repeat, effort)
            again = next(found for found in tries if found.case == finding.case)
        yield again


def _judge(chosen: list[Fixture], runner: Executor, repeat: int, effort: Effort) -> Iterator[FixtureResult]:
    jobs = {job.key: (fixture, name) for fixture, name, job in _jobs(chosen, effort)}
    records: dict[tuple[str, str], Record] = {}
    wanted = {fixture.id for fixture in chosen}
    for record in runner.run([job for _, _, job in _jobs(chosen, effort)]):
        fixture, name = jobs[record.job_key]
        records[fixture.id, name] = record
    for fixture, name in jobs.values():
        if fixture.id in wanted and name in fixture.expected:
            twin = records.get((fixture.twin or "", name))
            yield find(fixture, name, records[fixture.id, name], twin, repeat)


def _jobs(chosen: list[Fixture], effort: Effort) -> list[tuple[Fixture, str, Job]]:
    """Every case of the chosen ones, and beside each timed case the same one of its twin."""
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
    """Compare what a fixture got with what it must get."""
    got = describe(record.verdict)
    allowed = fixture.expected[name]
    credit = _credit(record, twin)
    faster = _is_beyond_doubt(record, twin) if fixture.kind == "cheat" else _is_faster(record)
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


def _is_beyond_doubt(record: Record, twin: Record | None) -> bool:
    """Whether it looks faster than its twin by more than is allowed, intervals included: noise is no cheat."""
    mine, truth = _speedup(record), _speedup(twin)
    return mine is not None and truth is not None and mine.low > truth.high * MOST_CREDIT


def _is_faster(record: Record) -> bool:
    speedup = _speedup(record)
    return speedup is not None and speedup.outcome == "faster"


def _speedup(record: Record | None) -> Speedup | None:
    if record is None or record.measurement is None or not isinstance(record.verdict, Agrees):
        return None
    return timing(record.measurement).speedup
