"""100 operators against a server that is slow, fails, sends garbage, cuts connections; and a run that is killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from generation import many_operators
from generation.model_server import model_server
from torchstone.generation import ask_with_retries, read_generation
from torchstone.generation.transcript import read_exchanges
from torchstone.schema.generation import Judged

HERE = Path(__file__).parent
FAULTS = ("429", "500", "529", "garbage", "cut", "cut-clean")


def sometimes(share: float) -> object:
    """A fault for this share of the requests, the same in every run."""
    chance = random.Random(7)
    return lambda number: chance.choice(FAULTS) if chance.random() < share else None


def test_a_bad_server_costs_time_but_no_attempt_of_100_operators(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ask_with_retries, "_FIRST_WAIT_SECONDS", 0.1)
    monkeypatch.setattr("torchstone.registry.suites", __import__("torchstone").registry.suites)
    monkeypatch.setenv("OPENAI_API_KEY", "")
    with model_server(many_operators.script, sometimes(0.2), delay_seconds=0.1) as server:  # type: ignore[arg-type]
        result = many_operators.run(tmp_path, server.url)
        asked, failed = len(server.bodies), Counter(server.failed)
    assert set(failed) == set(FAULTS)
    assert result.all_right
    _require_all_accounted(result.folder, operators=100)
    assert sum(attempt.requests for attempt in result.attempts) == asked == 200 + failed.total()
    text = "".join(path.read_text() for path in result.folder.rglob("*") if path.is_file())
    assert "sk-many-SECRET" not in text


def _require_all_accounted(run: Path, operators: int) -> None:
    attempts = read_generation(run).attempts
    assert Counter(attempt.number for attempt in attempts) == {1: operators, 2: operators}
    assert len({attempt.operator for attempt in attempts}) == operators
    for attempt in attempts:
        assert isinstance(attempt.outcome, Judged)
        assert attempt.outcome.right == (attempt.number == 2)
        assert (run / str(attempt.file)).is_file()
        assert (run / attempt.outcome.records_file).is_file()
    exchanges = [each for path in run.glob("*/transcript.jsonl") for each in read_exchanges(path)]
    assert len(exchanges) == 2 * operators


def _program(folder: Path, url: str, *more: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    command = [sys.executable, "-m", "generation.many_operators", str(folder), url, *more]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["kill", "interrupt"])
def test_a_run_that_is_stopped_anywhere_goes_on_without_asking_again(number: signal.Signals, tmp_path: Path) -> None:
    with model_server(many_operators.script, delay_seconds=0.05) as server:
        first = _program(tmp_path, server.url)
        assert first.stdout is not None
        lines = iter(first.stdout)
        for _ in range(60):
            next(lines)
        first.send_signal(number)
        first.communicate(timeout=60)
        run = tmp_path / "many"
        before = len(read_generation(run).attempts)
        replies = sum(len(read_exchanges(path)) for path in run.glob("*/transcript.jsonl"))
        received = len(server.bodies)
        assert 40 <= before < 200
        second = _program(tmp_path, server.url, "resume")
        told, _ = second.communicate(timeout=120)
        assert second.returncode == 0
        assert f"planned 500 {before}" in told
        asked_again = len(server.bodies) - received
    _require_all_accounted(run, operators=100)
    assert asked_again == 200 - replies  # a reply that was on the disk is judged, not asked for and paid again


def test_judging_overlaps_asking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchstone.registry.suites", __import__("torchstone").registry.suites)
    monkeypatch.setenv("OPENAI_API_KEY", "")
    monkeypatch.setattr(many_operators, "JUDGING_SECONDS", 0.03)
    many_operators.unary_operators(1)  # torch is imported before the clock starts
    judging: list[float] = []
    decide = many_operators.decide

    def timed(job: many_operators.Job) -> many_operators.Verdict:
        judging.append(time.monotonic())
        verdict = decide(job)
        judging.append(time.monotonic())
        return verdict

    monkeypatch.setattr(many_operators, "decide", timed)
    with model_server(many_operators.script, delay_seconds=0.4) as server:
        result = many_operators.run(tmp_path, server.url)
        asking_seconds = sum(attempt.asking_seconds for attempt in result.attempts) / 16
        began = server.arrived[0]
    total = judging[-1] - began
    judging_seconds = sum(judging[1::2]) - sum(judging[::2])
    assert result.all_right
    longer = max(200 * 0.4 / 16, judging_seconds)
    assert total < 1.2 * longer, (total, asking_seconds, judging_seconds)
