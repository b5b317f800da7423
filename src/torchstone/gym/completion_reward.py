"""A reward function for trainers such as TRL: takes a completion and its operator, returns a number or None."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from torchstone.errors import InfrastructureError, UsageError
from torchstone.gym.evaluator import Evaluator, TurnResult

Completion = str | Sequence[Mapping[str, Any]]
"""The text of a reply, or a conversation whose last message is the reply."""
WhenUnjudged = Literal["none", "raise"]
"""If the machine could not judge a kernel: the kernel's reward is None, or the whole batch raises
`InfrastructureError`."""


class CompletionReward:
    """Reward function: ``reward(completion, operator)``. None: the machine could not judge it; leave the sample out.

    Use ``unjudged="raise"`` for trainers that treat None as 0.
    """

    __name__ = "kernel_reward"  # trainers log a reward function's name

    def __init__(self, evaluator: Evaluator, *, unjudged: WhenUnjudged = "none") -> None:
        if unjudged not in get_args(WhenUnjudged):
            raise UsageError(f"unjudged is '{unjudged}'; expected one of: {', '.join(get_args(WhenUnjudged))}.")
        self._evaluator, self._unjudged = evaluator, unjudged

    def __call__(self, completion: Completion, operator: str) -> float | None:
        return self._rewards([(text_of(completion), operator)])[0]

    def trl(
        self, prompts: Sequence[Any], completions: Sequence[Completion], operator: Sequence[str], **columns: Any
    ) -> list[float | None]:
        """The reward function of TRL's trainers: one reward for each completion of a batch, judged at once.

        ``operator`` is the column of that name in the dataset. Versions of TRL before pull request 5902 (June 2026)
        take a row without any reward for 0: use ``unjudged="raise"`` with them.
        """
        if not len(prompts) == len(completions) == len(operator):
            counts = f"{len(prompts)} prompts, {len(completions)} completions, {len(operator)} operators"
            raise UsageError(f"a batch has {counts}; expected as many of each.")
        replies = [text_of(completion) for completion in completions]
        return self._rewards(list(zip(replies, operator, strict=True)))

    def _rewards(self, replies: list[tuple[str, str]]) -> list[float | None]:
        results = self._evaluator.turns_now(replies)
        if self._unjudged == "raise":
            _require_judged(results)
        return [each.reward for each in results]


def _require_judged(results: Sequence[TurnResult]) -> None:
    failed = [each for each in results if not each.judged]
    if failed:
        raise InfrastructureError(
            f"{len(failed)} of {len(results)} kernels have no reward: the machine could not judge them. "
            f"The first, for {failed[0].operator}: {' '.join(failed[0].feedback.split())}"
        )


def text_of(completion: Completion) -> str:
    """The text of the last message: all its parts of type `text`. Empty for messages that only call tools."""
    if isinstance(completion, str):
        return completion
    content = completion[-1].get("content") if completion else ""
    if content is None:
        return ""
    if isinstance(content, list | tuple):
        return "".join(map(_part_text, content))
    if not isinstance(content, str):
        raise UsageError(f"the last message of a completion has {type(content).__name__}, not text, as its content.")
    return content


def _part_text(part: Any) -> str:
    """The text of one part of a message; empty for images and tool calls."""
    text = part.get("text") if isinstance(part, Mapping) and part.get("type", "text") == "text" else part
    return text if isinstance(text, str) else ""
