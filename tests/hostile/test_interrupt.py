"""Ctrl-C in the middle of a run: what is done is kept, everything stops, and the run can go on."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest

from hostile.command import RunFolder, run_sixty
from hostile.sixty import sixty_cases

pytestmark = pytest.mark.adversary
JOBS = 24


def test_ctrl_c_keeps_what_is_done_and_stops_everything(tmp_path: Path) -> None:
    run, bad = RunFolder.prepare(tmp_path)
    good = ",".join([case.operator for case in sixty_cases() if case.operator not in bad][:JOBS])
    process = subprocess.Popen(
        run.command("--ops", good),
        env=run.environment(),
        cwd=run.root,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while (not run.journal.exists() or len(run.records()) < 8) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    _, errors = process.communicate(timeout=30)
    assert time.monotonic() - began < 10
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert "--resume" in errors
    done = run.records()
    assert 8 <= len(done) < JOBS
    assert (run.journal.parent / "OVERALL_SUMMARY.md").exists()
    assert run.wait_for_end() == []
    finished = run_sixty(run, "--ops", good, "--resume")
    assert finished.returncode == 0, finished.stderr
    records = run.records()
    assert len({record["job_key"] for record in records}) == len(records) == JOBS
    assert records[: len(done)] == done, "what was done is not done again"
