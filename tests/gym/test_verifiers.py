"""The environment in the real `verifiers` package: a scripted model fails, cheats, then succeeds.

`verifiers` and what it needs are 500 MB, so it is installed into a virtual environment of its own, beside the packages
of this one. TORCHSTONE_VERIFIERS_VENV names a folder in which that environment is kept for the next time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from gym.chat_server import chat_server
from gym.kernels import CHEATING, RELU, RIGHT, WRONG, reply

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "environments" / "torchstone_kernels"
SPEED_SETTINGS = {"device": "cpu", "effort": "quick"}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment with verifiers and the package under test."""
    kept = os.environ.get("TORCHSTONE_VERIFIERS_VENV")
    folder = Path(kept) if kept else tmp_path_factory.mktemp("verifiers") / "venv"
    if not (folder / "bin" / "vf-eval").is_file():
        call(sys.executable, "-m", "venv", str(folder))
        call(str(folder / "bin" / "python"), "-m", "pip", "install", "-q", "verifiers>=0.4,<0.5", "uv")
    # What it has itself comes first; torch and Torchstone are those of the tests.
    (packages,) = (folder / "lib").glob("python*/site-packages")
    line = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r}); site.addsitedir({str(ROOT / 'src')!r})\n"
    (packages / "zz_torchstone.pth").write_text(line)
    call(str(folder / "bin" / "python"), "-m", "pip", "install", "-q", "--no-deps", str(PACKAGE))
    return folder / "bin"


def call(*command: str, cwd: Path | None = None, path: Path | None = None) -> str:
    environment = {**os.environ, "SCRIPTED_KEY": "none", "OMP_NUM_THREADS": "1"}
    if path is not None:
        environment["PATH"] = f"{path}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def evaluated(programs: Path, folder: Path, replies: list[str], *arguments: str) -> list[dict[str, Any]]:
    """The episodes of two rollouts with a model that gives these replies in turn."""

    def script(messages: list[dict[str, Any]]) -> str:
        spoken = sum(message["role"] == "assistant" for message in messages)
        return replies[min(spoken, len(replies) - 1)]

    settings = json.dumps(SPEED_SETTINGS)
    with chat_server(script) as url:
        server = ("--client.base-url", url, "--client.api-key-var", "SCRIPTED_KEY", "-m", "scripted")
        task = ("--env.taskset.ops", '["relu"]', "--env.taskset.settings", settings)
        ways = ("-n", "1", "-r", "2", "--no-push", "--no-rich", "-o", "out")
        call(
            str(programs / "vf-eval"),
            "torchstone-kernels",
            *server,
            *task,
            *ways,
            *arguments,
            cwd=folder,
            path=programs,
        )
    (traces,) = folder.glob("out/*/traces.jsonl")
    return [json.loads(line) for line in traces.read_text().splitlines()]


def test_a_model_that_fails_cheats_and_succeeds_gets_the_right_reward_in_every_turn(
    programs: Path, tmp_path: Path
) -> None:
    turns = ("--env.taskset.num-turns", "4", "--env.taskset.feedback-loop", "until_correct")
    episodes = evaluated(programs, tmp_path, [reply(text) for text in (WRONG, CHEATING, RIGHT)], *turns)
    assert len(episodes) == 2
    for episode in episodes:
        assert episode["ok"], episode["errors"]
        (trace,) = episode["traces"]
        results = trace["info"]["turns"]
        assert [result["verdict"] for result in results] == ["disagrees", "cheated", "agrees"]
        failed, cheated, right = (result["reward"] for result in results)
        assert cheated == -1.0
        assert results[1]["guards"] == ["reply"]
        assert 0 <= failed < 0.3 <= right <= 1
        assert {result["operator"] for result in results} == {RELU}
        assert trace["rewards"]["kernel"]["score"] == right
        assert trace["metrics"]["judged_turns"] == 3
        assert trace["metrics"]["cheated_turns"] == 1
        assert trace["metrics"]["right"] == 1
        assert episode["task"]["data"]["settings"]["split"] == "train"


def test_the_last_turn_is_judged_too_and_without_feedback_there_is_one(programs: Path, tmp_path: Path) -> None:
    replies = [reply(WRONG), reply(RIGHT)]
    (tmp_path / "one").mkdir()
    for episode in evaluated(programs, tmp_path, replies, "--env.taskset.num-turns", "2"):
        (trace,) = episode["traces"]
        assert [result["verdict"] for result in trace["info"]["turns"]] == ["disagrees", "agrees"]
    alone = ("--env.taskset.num-turns", "2", "--env.taskset.feedback-loop", "none")
    for episode in evaluated(programs, tmp_path / "one", replies, *alone):
        (trace,) = episode["traces"]
        assert [result["verdict"] for result in trace["info"]["turns"]] == ["disagrees"]


def test_the_packages_own_validation_passes(programs: Path, tmp_path: Path) -> None:
    task = ("--taskset.ops", '["relu", "add.Tensor"]', "--taskset.settings", json.dumps(SPEED_SETTINGS))
    ways = ("--runtime.type", "subprocess", "--no-rich", "-o", "out")
    call(str(programs / "vf-validate"), "torchstone-kernels", *task, *ways, cwd=tmp_path, path=programs)
    (summary,) = tmp_path.glob("out/*/summary.json")
    found = json.loads(summary.read_text())
    assert found["outcomes"]["valid"] == found["total"] == 2
    assert found["checks"]["gold"]["valid"] == found["checks"]["noop"]["valid"] == 2


UNJUDGED = """
import asyncio, json, sys
from verifiers.v1.cli.eval.runner import run_eval
from verifiers.v1.configs.cli.eval import EvalConfig
from torchstone.errors import InfrastructureError
from torchstone.gym import Evaluator


async def fails(self, code, operator):
    raise InfrastructureError("the device is lost.")


Evaluator.evaluate = fails
config = {
    "env": {"taskset": {"id": "torchstone-kernels", "ops": ["relu"], "num_turns": 2, "settings": {"device": "cpu"}}},
    "client": {"type": "eval", "base_url": sys.argv[1], "api_key_var": "SCRIPTED_KEY"},
    "model": "scripted", "push": False, "rich": None, "select": {"limit": 1}, "output_dir": "out",
}
for episode in asyncio.run(run_eval(EvalConfig.model_validate(config))):
    print("EPISODE", episode.model_dump_json())
"""


def test_a_rollout_that_the_machine_could_not_judge_fails_and_has_no_reward(programs: Path, tmp_path: Path) -> None:
    with chat_server(lambda messages: reply(RIGHT)) as url:
        told = call(str(programs / "python"), "-c", UNJUDGED, url, cwd=tmp_path, path=programs)
    (episode,) = (
        json.loads(line.removeprefix("EPISODE ")) for line in told.splitlines() if line.startswith("EPISODE ")
    )
    assert not episode["ok"]
    assert "the device is lost" in json.dumps(episode["errors"])
    (trace,) = episode["traces"]
    assert [turn["reward"] for turn in trace["info"]["turns"]] == [None]
    assert not any(trace["rewards"].values())
