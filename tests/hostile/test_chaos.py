"""Again and again ``kill -9`` at random moments of the hostile run: nothing is lost, nothing is counted twice."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from hostile.command import RunFolder, run_sixty

pytestmark = [pytest.mark.adversary, pytest.mark.slow]

KILLS = int(os.environ.get("TORCHSTONE_TEST_KILLS", "4"))
_DRAWN_ANEW = ("error", "bound", "speedup")
"""Columns whose figures follow from the values drawn, and those are never the same twice."""
ROLES = ("command line", "judge", "zygote", "worker")


def test_a_run_that_is_killed_again_and_again_ends_like_an_undisturbed_one(tmp_path: Path) -> None:
    undisturbed, _ = RunFolder.prepare(tmp_path / "undisturbed")
    disturbed, _ = RunFolder.prepare(tmp_path / "disturbed")
    assert run_sixty(undisturbed).returncode == 1
    killed = _run_while_killing(disturbed)
    assert sum(killed.values()) == KILLS, killed
    assert set(killed) == set(ROLES), killed
    records = disturbed.records()
    assert len(records) == 60
    assert len({record["job_key"] for record in records}) == 60
    assert _outcomes(disturbed) == _outcomes(undisturbed)
    assert _summary(disturbed) == _summary(undisturbed)
    assert disturbed.wait_for_end() == []


def _run_while_killing(run: RunFolder) -> dict[str, int]:
    """Start the run, kill one of its processes after another, resume whenever the command line itself is gone."""
    chance = random.Random()
    killed: dict[str, int] = {}
    order = [ROLES[index % len(ROLES)] for index in range(KILLS)]
    chance.shuffle(order)
    process = _start(run, resume=False)
    deadline = time.monotonic() + 400
    while order and time.monotonic() < deadline:
        time.sleep(chance.uniform(0.2, 1.5))
        if process.poll() is not None:
            if process.returncode != -signal.SIGKILL:
                _forget_half(run)  # finished before all kills were dealt: as if it had been interrupted half-way
            process = _start(run, resume=True)
            continue
        pids = _roles(process.pid).get(order[-1], [])
        if pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(chance.choice(pids), signal.SIGKILL)
                role = order.pop()
                killed[role] = killed.get(role, 0) + 1
    process.wait(300)
    for _ in range(5):
        finished = _start(run, resume=True)
        if finished.wait(300) == 1:
            break
    return killed


def _start(run: RunFolder, resume: bool) -> subprocess.Popen[bytes]:
    more = ("--resume",) if resume and run.journal.parent.exists() else ()
    output = (run.root / "output.txt").open("ab")
    try:
        return subprocess.Popen(
            run.command(*more),
            env=run.environment(),
            cwd=run.root,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    finally:
        output.close()


def _forget_half(run: RunFolder) -> None:
    lines = run.journal.read_bytes().splitlines(keepends=True)
    run.journal.write_bytes(b"".join(lines[: len(lines) // 2]) + lines[-1][:20])


def _roles(command_line: int) -> dict[str, list[int]]:
    """The processes of a run by what they are, found by who is whose child."""
    judges = _children(command_line)
    zygotes = [pid for judge in judges for pid in _children(judge)]
    wardens = [pid for zygote in zygotes for pid in _children(zygote)]
    workers = [pid for warden in wardens for pid in _children(warden)]
    return {"command line": [command_line], "judge": judges, "zygote": zygotes, "worker": workers}


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            found += [int(child) for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split()]
    return found


def _outcomes(run: RunFolder) -> dict[str, tuple[str, str | None]]:
    return {
        record["case"]["operator"]: (record["verdict"]["type"], record["verdict"].get("stage"))
        for record in run.records()
    }


def _summary(run: RunFolder) -> list[str]:
    """The operators' table of the Markdown summary without measured error sizes, which are drawn anew."""
    text = (run.journal.parent / "operator_summary.csv").read_text().splitlines()
    columns = text[0].split(",")
    kept = [index for index, name in enumerate(columns) if not any(word in name for word in _DRAWN_ANEW)]
    return [",".join(line.split(",")[index] for index in kept) for line in text]
