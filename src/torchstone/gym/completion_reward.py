"""A reward function for trainers: a completion and its operator in, a number out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torchstone.errors import UsageError
from torchstone.gym.evaluator import Evaluator

Completion = str | Sequence[Mapping[str, Any]]
"""The text of a reply, or a conversation whose last message it is."""


class CompletionReward:
    """``reward(completion, operator)``. None: the machine could not judge it; leave the sample out."""

    __name__ = "kernel_reward"  # trainers log a reward function's name

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator

    def __call__(self, completion: Completion, operator: str) -> float | None:
        return self._evaluator.turn_now(text_of(completion), operator).reward

    def trl(
        self, prompts: Sequence[Any], completions: Sequence[Completion], operator: Sequence[str], **columns: Any
    ) -> list[float | None]:
        """The reward function of TRL's trainers: one reward for each completion of a batch, judged at once.

        ``operator`` is the column of that name in the dataset. TRL leaves out samples whose reward is None.
        """
        if not len(prompts) == len(completions) == len(operator):
            counts = f"{len(prompts)} prompts, {len(completions)} completions, {len(operator)} operators"
            raise UsageError(f"a batch has {counts}; expected as many of each.")
        replies = [text_of(completion) for completion in completions]
        return [each.reward for each in self._evaluator.turns_now(list(zip(replies, operator, strict=True)))]


def text_of(completion: Completion) -> str:
    """The text of the last message."""
    if isinstance(completion, str):
        return completion
    content = completion[-1].get("content") if completion else ""
    if not isinstance(content, str):
        raise UsageError(f"the last message of a completion has {type(content).__name__}, not text, as its content.")
    return content
