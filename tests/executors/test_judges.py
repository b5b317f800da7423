"""Several judges of one device, with real processes on the CPU."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from torchstone.executors import ExecutorOptions
from torchstone.executors.local import JudgeProcess, LocalExecutor
from torchstone.executors.worker_setup_for_jobs import WorkerSetup
from torchstone.schema import (
    Agrees,
    Case,
    Crashed,
    Deadlines,
    Disagrees,
    Implementation,
    Job,
    Normal,
    Record,
    SourceFile,
    SourceFiles,
    Tensor,
    TimedOut,
)
from torchstone.supervisor.ptrace_freezing import descendants
from torchstone.supervisor.zygote_fork_server import ZygoteForkServer

pytestmark = pytest.mark.slow

RELU = Case("test", "aten.relu.default", (Tensor((5, 7), "float32", Normal()),))
TIMED = Case("test", "aten.relu.default", (Tensor((64, 64), "float32", Normal()),), timed=True)
TWO = ExecutorOptions(judges_per_device=2)


def source(text: str) -> Implementation:
    return Implementation("test", RELU.operator, SourceFiles((SourceFile("kernel.py", text),), "kernel"))


def honest(number: int) -> Implementation:
    return source(f"# {number}\ndef kernel(x): return x.clamp(min=0)")


def judge_all(jobs: list[Job], options: ExecutorOptions = TWO) -> dict[str, Record]:
    records = list(LocalExecutor(options).run(jobs))
    assert sorted(record.job_key for record in records) == sorted(job.key for job in jobs), "each exactly once"
    return {record.job_key: record for record in records}


def test_two_judges_share_the_work_candidate_by_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[int, str]] = []
    give = JudgeProcess.give

    def noting(self: JudgeProcess, job: Job, lost: int) -> None:
        given.append((self._place, job.implementation.key))
        give(self, job, lost)

    monkeypatch.setattr(JudgeProcess, "give", noting)
    right = [Job(case, honest(number), "quick") for number in range(4) for case in (RELU, TIMED)]
    wrong = [Job(TIMED, source(f"def kernel(x): return x + {number}"), "quick") for number in range(2)]
    broken = [Job(RELU, source(f"nonsense {number}"), "quick") for number in range(2)]
    records = judge_all([*right, *wrong, *broken])
    assert all(isinstance(records[job.key].verdict, Agrees) for job in right)
    assert all(isinstance(records[job.key].verdict, Disagrees) for job in wrong)
    for job in broken:
        verdict = records[job.key].verdict
        assert isinstance(verdict, Crashed)
        assert (verdict.stage, verdict.kind) == ("load", "exception")
    assert {place for place, _ in given} == {0, 1}, "both took part"
    starts: dict[str, set[int]] = {}
    shared: list[str] = []
    for place, key in given:
        places = starts.setdefault(key, set())
        if places and place not in places:
            shared.append(key)
            assert len(starts) == 8, "another judge helps with a candidate once all have been begun"
        places.add(place)
    assert len(shared) <= 1, "a judge that helps in the end helps with one"
    assert sum(record.measurement is not None for record in records.values()) == 4


def test_a_measurement_does_not_wait_for_a_candidate_that_takes_its_time() -> None:
    slow = Job(RELU, source("import time\ndef kernel(x):\n    time.sleep(4)\n    return x.clamp(min=0)\n"), "quick")
    stuck = Deadlines(compile_seconds=15, check_seconds=0.5)
    hurried = [Job(TIMED, honest(number), "quick") for number in range(3)]
    records = judge_all([Job(slow.case, slow.implementation, "quick", stuck), *hurried])
    late = records[slow.key]
    assert isinstance(late.verdict, TimedOut)
    assert late.verdict.stage == "check", "standing still while others measure is not on its account"
    for job in hurried:
        record = records[job.key]
        assert isinstance(record.verdict, Agrees)
        assert record.stage_seconds["wait"] < 2.5
        assert record.finished_unix_ns < late.finished_unix_ns


def test_a_judge_that_dies_costs_only_its_job_another_try(monkeypatch: pytest.MonkeyPatch) -> None:
    give = JudgeProcess.give
    victim = Job(RELU, honest(2))

    def give_and_kill(self: JudgeProcess, job: Job, lost: int) -> None:
        give(self, job, lost)
        if job == victim and lost == 0:
            assert self._process is not None
            self._process.kill()

    monkeypatch.setattr(JudgeProcess, "give", give_and_kill)
    jobs = [victim if number == 2 else Job(RELU, honest(number)) for number in range(6)]
    records = judge_all(jobs)
    assert all(isinstance(record.verdict, Agrees) for record in records.values())
    assert {key for key, record in records.items() if record.attempts > 1} == {victim.key}
    assert records[victim.key].attempts == 2


def test_a_judge_that_does_not_start_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    start = JudgeProcess.start

    def start_and_kill(self: JudgeProcess, setup: WorkerSetup, fork_server: ZygoteForkServer | None) -> None:
        start(self, setup, fork_server)
        if self._place == 1:
            assert self._process is not None
            self._process.kill()

    monkeypatch.setattr(JudgeProcess, "start", start_and_kill)
    records = judge_all([Job(RELU, honest(number)) for number in range(3)])
    assert all(isinstance(record.verdict, Agrees) for record in records.values())


def test_closing_the_iterator_ends_every_judge() -> None:
    stuck = [Job(RELU, source(f"import time\ndef kernel(x): time.sleep(60 + {n})")) for n in range(3)]
    stream = LocalExecutor(TWO).run([Job(RELU, honest(0)), *stuck])
    next(stream)
    began = time.monotonic()
    stream.close()  # type: ignore[attr-defined]
    assert time.monotonic() - began < 5
    commands = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in descendants(os.getpid())]
    assert not any(b"torchstone.judge_process.process" in command for command in commands)


def test_an_interrupted_run_with_two_judges_is_resumed(tmp_path: Path) -> None:
    command = [
        *(sys.executable, "-m", "torchstone", "run", "--suite", "smoke", "--ops", "relu,gelu,mm,cat,sum,mul"),
        *("--device", "cpu", "--effort", "quick", "--judges", "2", "--no-measure", "--quiet"),
        *("--output-dir", str(tmp_path), "--run-id", "run"),
    ]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    run = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    journal = tmp_path / "run" / "records.jsonl"
    until = time.monotonic() + 60
    while time.monotonic() < until and not (journal.exists() and journal.read_bytes().count(b"\n") >= 3):
        time.sleep(0.02)
    run.send_signal(signal.SIGINT)
    _, errors = run.communicate(timeout=30)
    assert run.returncode == 130, errors
    kept = [json.loads(line)["job_key"] for line in journal.read_text().splitlines()]
    again = subprocess.run([*command, "--resume"], env=environment, capture_output=True, timeout=120)
    assert again.returncode == 0, again.stderr
    keys = [json.loads(line)["job_key"] for line in journal.read_text().splitlines()]
    assert len(keys) == len(set(keys)) > len(kept) >= 3
    assert keys[: len(kept)] == kept
