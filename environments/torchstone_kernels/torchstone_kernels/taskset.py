"""The tasks: one for each operator or problem of a suite."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import msgspec
import verifiers.v1 as vf
from pydantic import Field

from torchstone.gym import EvaluatorConfig
from torchstone.gym.config import configured
from torchstone_kernels.evaluators import evaluator_of

TURNS = "turns"
"""Where the results of a rollout's turns lie in the trace's `info`."""


class KernelsConfig(vf.TasksetConfig):
    """What is asked and how it is judged. The fields are those of `torchstone.gym.EvaluatorConfig`."""

    suite: str = "smoke"
    source: str | None = None
    """File or folder of cases, for suites that read one: the problems of `kernelbench`."""
    ops: list[str] | None = None
    """Operators, by overload or base name; unset: all of the suite."""
    gpu: Literal["local", "T4", "L4", "A100", "H100", "H200", "B200"] = "local"
    num_turns: int = Field(1, ge=1)
    """Replies of the model in one rollout; every one is judged."""
    feedback_loop: Literal["until_correct", "until_max_turns", "none"] = "until_max_turns"
    split: Literal["train", "eval", "all"] = "train"
    language: str | None = None
    """`triton`, `cuda`, `cpp`, `pytorch` …; unset: `triton` on a GPU, `pytorch` on the CPU."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Further fields of `EvaluatorConfig`: `reward`, `effort`, `judges`, `measured`, `device` …"""

    def evaluator_config(self) -> EvaluatorConfig:
        """The same as Torchstone's own configuration."""
        names = ("suite", "source", "ops", "gpu", "num_turns", "feedback_loop", "split", "language")
        return configured(None, {**{name: getattr(self, name) for name in names}, **self.settings})


class KernelData(vf.TaskData):
    """One operator to write a kernel for."""

    operator: str
    entry: str
    """The function, or for a problem the class, that a reply must define."""
    settings: dict[str, Any]
    """How it is judged: a task that another process makes from this row judges in the same way."""


class KernelTask(vf.Task[KernelData]):
    """Its rewards are those of the turns, which the environment has judged."""

    @property
    def evaluator_config(self) -> EvaluatorConfig:
        return configured(None, self.data.settings)

    async def validate(self, runtime: vf.Runtime) -> bool:
        """Whether PyTorch's own implementation is right in every case of the task."""
        found = await evaluator_of(self.evaluator_config).evaluate_reference(self.data.operator)
        return found.agrees

    @vf.reward(weight=1.0)
    async def kernel(self, trace: vf.Trace) -> float:
        """The best turn's reward, or the last one's, as configured; 0 before any turn."""
        rewards = [turn["reward"] for turn in trace.info.get(TURNS, [])]
        if not rewards:
            return 0.0
        if any(reward is None for reward in rewards):
            raise RuntimeError("a kernel of this rollout was not judged: it has no reward")
        return max(rewards) if self.evaluator_config.rollout_reward == "best" else rewards[-1]

    @vf.metric
    async def outcome(self, trace: vf.Trace) -> dict[str, float]:
        """Turns, whether the last kernel is right, its correct share and speedup, and turns in which it cheated."""
        turns = trace.info.get(TURNS, [])
        last = turns[-1] if turns else {}
        return {
            "judged_turns": float(len(turns)),
            "right": float(bool(turns) and last["correct_share"] == 1),
            "correct_share": float(last.get("correct_share", 0.0)),
            "speedup_low": float(last.get("speedup_low") or 0.0),
            "cheated_turns": float(sum(turn["verdict"] == "cheated" for turn in turns)),
        }


class KernelTaskset(vf.Taskset[KernelTask, KernelsConfig]):
    """Every operator of the suite that has a case in the split."""

    def load(self) -> Iterator[KernelTask]:
        config = self.config.evaluator_config()
        settings = plain(config)
        for task in evaluator_of(config).tasks:
            data = KernelData(
                name=task.operator, prompt=task.prompt, operator=task.operator, entry=task.entry, settings=settings
            )
            yield KernelTask(data, self.config.task)


def plain(config: EvaluatorConfig) -> dict[str, Any]:
    """The configuration as JSON has it."""
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(config))
    return found
