"""One rollout: the prompt, the replies with their results, and when it ends. Independent of training frameworks."""

from __future__ import annotations

from torchstone.errors import UsageError
from torchstone.gym.evaluator import Evaluator, TurnResult
from torchstone.gym.tasks import KernelTask


class Rollout:
    """``await rollout.answer(reply)`` until ``rollout.is_done``. Every reply is judged, the last too."""

    def __init__(self, evaluator: Evaluator, operator: str) -> None:
        self._evaluator = evaluator
        self.task: KernelTask = evaluator.task(operator)
        self.results: list[TurnResult] = []

    @property
    def prompt(self) -> str:
        """The first message to the model."""
        return self.task.prompt

    @property
    def is_done(self) -> bool:
        """Whether the rollout is over: turns used up, a right kernel (`until_correct`), or one that was not judged."""
        config = self._evaluator.config
        if not self.results:
            return False
        last = self.results[-1]
        if len(self.results) >= config.turns or not last.judged:
            return True
        return config.feedback_loop == "until_correct" and last.right

    async def answer(self, completion: str) -> TurnResult:
        """Judge the next reply."""
        if self.is_done:
            raise UsageError("this rollout is over. Begin another.")
        result = await self._evaluator.turn(completion, self.task.operator)
        self.results.append(result)
        return result

    @property
    def reward(self) -> float | None:
        """The reward of the whole rollout. None: some reply could not be judged, or there was none."""
        rewards = [result.reward for result in self.results]
        known = [reward for reward in rewards if reward is not None]
        if not known or len(known) < len(rewards):
            return None
        return max(known) if self._evaluator.config.rollout_reward == "best" else known[-1]
