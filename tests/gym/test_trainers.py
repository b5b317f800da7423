"""Reward functions as trainers call them. A small stand-in calls them as TRL's GRPO trainer does; TRL is not needed."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import inspect
import math
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gym.kernels import CHEATING, RIGHT, WRONG, reply
from gym.test_evaluator import fake
from torchstone.errors import InfrastructureError, UsageError
from torchstone.gym import CompletionReward, KernelEnvironment

FAILING = "# machine fails\n" + RIGHT
RewardFunction = Callable[..., list[float | None]]


def advantages(
    reward: RewardFunction, rows: list[dict[str, Any]], completions: list[Any], *, skips_nan: bool = True
) -> list[float]:
    """What becomes of a group's rewards in a trainer: columns by keyword, None is NaN, the mean is taken off.

    ``skips_nan``: a row of which no function has a reward is left out, as in TRL since pull request 5902. Before, its
    sum was 0.
    """
    columns = {name: [row[name] for row in rows] for name in rows[0] if name != "prompt"}
    given: dict[str, Any] = {
        "prompts": [row["prompt"] for row in rows],
        "completions": completions,
        "completion_ids": [[1, 2]] * len(rows),
        "trainer_state": object(),
        "log_extra": lambda column, values: None,
        "log_metric": lambda name, value: None,
    }
    rewards = reward(**given, **columns)
    assert len(rewards) == len(rows)
    by_function = torch.tensor([[math.nan if each is None else each] for each in rewards], dtype=torch.float32)
    values = by_function.nansum(dim=1)
    if skips_nan:
        values[by_function.isnan().all(dim=1)] = math.nan
    found: list[float] = (values - values.nanmean()).tolist()
    return found


@pytest.mark.parametrize("chats", [False, True], ids=["text", "conversations"])
@pytest.mark.filterwarnings("ignore:a kernel of .* is unjudged:RuntimeWarning")
def test_a_trainer_calls_the_function_with_its_columns_and_a_failure_of_the_machine_counts_for_nothing(
    chats: bool,
) -> None:
    texts = [reply(RIGHT), reply(WRONG), "I cannot.", reply(FAILING)]
    completions = [[{"role": "assistant", "content": text}] for text in texts] if chats else texts
    with fake() as evaluator:
        prompt = evaluator.task("relu").prompt
        asked = [{"role": "user", "content": prompt}] if chats else prompt
        rows = [{"prompt": asked, "operator": "relu", "level": 1}] * 4
        right, wrong, nothing, failed = advantages(CompletionReward(evaluator).trl, rows, completions)
    assert right == pytest.approx(0.2)
    assert wrong == nothing == pytest.approx(-0.1)
    assert math.isnan(failed)


@pytest.mark.filterwarnings("ignore:a kernel of .* is unjudged:RuntimeWarning")
def test_where_a_trainer_takes_a_missing_reward_for_0_the_batch_is_an_error_if_asked_for() -> None:
    completions = [reply(RIGHT), reply(CHEATING), reply(FAILING)]
    with fake() as evaluator:
        rows = [{"prompt": "p", "operator": "relu"}] * 3
        *_, failed = advantages(CompletionReward(evaluator).trl, rows, completions, skips_nan=False)
        assert failed == pytest.approx(0.7 / 3), "better than the mean, and nobody knows whether it is right"
        strict = CompletionReward(evaluator, unjudged="raise")
        with pytest.raises(InfrastructureError, match=r"1 of 3 kernels have no reward.* aten\.relu\.default: ."):
            advantages(strict.trl, rows, completions, skips_nan=False)
        with pytest.raises(InfrastructureError, match="1 of 1 kernels have no reward"):
            strict(reply(FAILING), "relu")
        assert strict(reply(RIGHT), "relu") == pytest.approx(0.3)
        with pytest.raises(UsageError, match="unjudged is 'zero'; expected one of: none, raise"):
            CompletionReward(evaluator, unjudged="zero")


def test_a_message_without_text_is_no_code_and_parts_of_text_are_joined() -> None:
    first, second = reply(RIGHT).split("def ", 1)
    parts = [
        {"type": "text", "text": first},
        {"type": "image", "url": "x.png"},
        {"type": "text", "text": f"def {second}"},
    ]
    contents = [None, [], [{"type": "tool_use", "name": "f"}], parts, ["", reply(RIGHT)]]
    completions = [[{"role": "assistant", "content": content}] for content in contents]
    with fake() as evaluator:
        reward = CompletionReward(evaluator)
        found = reward.trl(prompts=["p"] * 5, completions=completions, operator=["relu"] * 5)
    assert found == [0.0, 0.0, 0.0, 0.3, 0.3]


def test_rewards_come_in_the_order_of_the_completions() -> None:
    texts = [RIGHT, CHEATING, WRONG, RIGHT, WRONG, CHEATING] * 5
    with fake() as evaluator:
        found = CompletionReward(evaluator).trl(
            prompts=["p"] * 30,
            completions=[f"```python\n# {n}\n{text}```" for n, text in enumerate(texts)],
            operator=["relu"] * 30,
        )
    assert found == [0.3, -1.0, 0.0, 0.3, 0.0, -1.0] * 5


class Generic:
    """Stands in for the classes of verifiers: of any type, made of any fields."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)

    def __class_getitem__(cls, kind: Any) -> Any:
        return cls


@contextlib.asynccontextmanager
async def one_reply(task: Any) -> Any:
    async def turn(feedback: str = "") -> Any:
        return SimpleNamespace(terminated=bool(feedback), last_reply=reply(RIGHT))

    yield SimpleNamespace(trace=task.trace, turn=turn)


def test_an_environment_of_verifiers_finds_its_tasks_and_ends_beside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = ("AgentConfig", "Agents", "Env", "HarnessConfig", "Runtime", "SingleAgentEnvConfig", "SubprocessConfig")
    names += ("Task", "TaskData", "Taskset", "TasksetConfig", "Trace")
    marks = {"reward": lambda weight: lambda method: method, "metric": lambda method: method}
    stand_in = SimpleNamespace(**dict.fromkeys(names, Generic), **marks)
    monkeypatch.setitem(sys.modules, "verifiers", SimpleNamespace(v1=stand_in))
    monkeypatch.setitem(sys.modules, "verifiers.v1", stand_in)
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "environments" / "torchstone_kernels"))
    environment = importlib.import_module("torchstone_kernels.environment")
    threads: list[threading.Thread] = []

    async def whole() -> dict[str, Any]:
        with fake() as evaluator:

            def ask(config: object) -> Any:
                threads.append(threading.current_thread())
                return evaluator

            monkeypatch.setattr(environment, "evaluator_of", ask)
            monkeypatch.setattr(environment, "close_evaluator", ask)
            task = environment.KernelTask(data=SimpleNamespace(operator="relu", settings={}))
            task.trace = SimpleNamespace(info={})
            agent = SimpleNamespace(interaction=one_reply)
            kernels = environment.KernelEnv(taskset=SimpleNamespace(config=SimpleNamespace(evaluator_config=dict)))
            await kernels.run(task, SimpleNamespace(agent=agent))
            await kernels.stop()
            return task.trace.info

    (turn,) = asyncio.run(whole())["turns"]
    for name in [name for name in sys.modules if name.startswith("torchstone_kernels")]:
        del sys.modules[name]  # made of the stand-in
    assert turn["verdict"] == "agrees"
    assert len(threads) == 2
    assert threading.main_thread() not in threads


def test_a_trainer_can_name_the_function_and_calls_it_without_an_event_loop() -> None:
    reward = CompletionReward(fake())
    assert (reward.trl.__name__, reward.__name__) == ("trl", "kernel_reward")
    assert not inspect.iscoroutinefunction(reward.trl)
    parameters = inspect.signature(reward.trl).parameters.values()
    assert any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters), "columns that it does not know"


def test_a_loop_of_reset_and_step_ends_and_its_rewards_are_bounded() -> None:
    """As a loop over an environment of Gymnasium goes: it knows nothing of kernels."""
    answers = iter([reply(WRONG), reply(CHEATING), "nothing", reply(RIGHT), reply(WRONG)])
    with fake(num_turns=8, feedback_loop="until_correct") as evaluator:
        environment = KernelEnvironment(evaluator)
        observation, info = environment.reset(seed=1)
        assert isinstance(observation, str)
        assert info["operator"] == "aten.relu.default"
        rewards, terminated, truncated = [], False, False
        while not (terminated or truncated):
            observation, reward, terminated, truncated, info = environment.step(next(answers))
            assert isinstance(observation, str)
            rewards.append(reward)
        environment.close()
    assert rewards == [0.0, -1.0, 0.0, 0.3]
    assert (terminated, truncated) == (True, False)
