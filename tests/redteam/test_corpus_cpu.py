"""The corpus on the CPU: every cheat is stopped or wins nothing, every honest look-alike agrees."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from torchstone.executors.base import ExecutorOptions
from torchstone.executors.local import LocalExecutor
from torchstone.redteam import Finding, Fixture, judge_corpus, read_corpus
from torchstone.redteam.run import LIMITS

pytestmark = pytest.mark.adversary

FIXTURES = [fixture for fixture in read_corpus() if fixture.device == "cpu"]
_BY_ID = {fixture.id: fixture for fixture in FIXTURES}
_CASES = [(fixture.id, case) for fixture in FIXTURES for case in fixture.expected]


@pytest.fixture(scope="module")
def findings() -> dict[tuple[str, str], Finding]:
    """One run for all: starting a judge costs more than judging a fixture. Two judges; one at a time measures."""
    side_by_side = LocalExecutor(ExecutorOptions(device="cpu", limits=LIMITS, judges_per_device=2))
    found = judge_corpus("cpu", executor=side_by_side, effort="quick")
    return {(each.fixture, each.case): each for each in found}


@pytest.mark.parametrize(("name", "case"), _CASES, ids=[f"{name}-{case}" for name, case in _CASES])
def test_every_fixture_gets_what_it_must_get(name: str, case: str, findings: dict[tuple[str, str], Finding]) -> None:
    found = findings[name, case]
    expect(_BY_ID[name], found)


def expect(fixture: Fixture, found: Finding) -> None:
    """A known hole may be open (the reason is in its header) or closed; everything else must be as expected.

    But for speeds: where others have the cores again and again, nobody's is borne out. That they are on a quiet machine
    is for ``torchstone redteam`` to show, and for the statistics' own tests.
    """
    if fixture.hole and not found.as_expected:
        pytest.xfail(fixture.hole)
    if found.status == "uncredited":
        pytest.skip(f"no speed was seen on this machine, in several tries: {found.message}")
    assert found.as_expected, f"{found.verdict} ({found.status}), expected {found.expected}: {found.message}"


def test_no_child_outlives_the_run(findings: dict[tuple[str, str], Finding]) -> None:
    assert findings
    left = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_bytes() == b"sleep\x0098765\x00":
                left.append(pid)
    assert left == []
