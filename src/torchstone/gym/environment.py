"""An environment with `reset` and `step`, as Gymnasium defines them. Needs no further package."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from torchstone.api.run_now import run_now
from torchstone.errors import UsageError
from torchstone.gym.evaluator import Evaluator
from torchstone.gym.rollout import Rollout


class KernelEnvironment:
    """Observations are prompts and feedback, actions are replies of a model.

    One evaluator may serve many environments, each with a rollout of its own.
    """

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator
        self._random = random.Random()
        self._rollout: Rollout | None = None

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Begin a rollout: the prompt, and the task in words.

        ``options={"operator": "relu"}`` chooses the task; otherwise it is drawn. A seed makes the draws repeatable;
        what the judge draws never is.
        """
        if seed is not None:
            self._random = random.Random(seed)
        unknown = sorted(set(options or {}) - {"operator"})
        if unknown:
            raise UsageError(f"unknown option of reset: {', '.join(unknown)}. Known: operator.")
        operator = (options or {}).get("operator") or self._random.choice(self._evaluator.tasks).operator
        self._rollout = Rollout(self._evaluator, operator)
        task = self._rollout.task
        return self._rollout.prompt, {"operator": task.operator, "entry": task.entry, "cases": len(task.cases)}

    def step(self, action: str) -> tuple[str, float | None, bool, bool, dict[str, Any]]:
        """Judge a reply. Returns feedback, reward, terminated, truncated, and the whole result as a dictionary.

        ``terminated``: the kernel is right, and no faster one is wanted. ``truncated``: the turns are used up, or the
        machine could not judge the kernel. In the latter case the reward is None; leave the rollout out of training.
        """
        if self._rollout is None:
            raise UsageError("step was called before reset. Call reset first.")
        rollout = self._rollout
        result = run_now(rollout.answer(action))
        solved = self._evaluator.config.feedback_loop == "until_correct" and result.right
        return result.feedback, result.reward, solved, rollout.is_done and not solved, result.to_dict()

    def close(self) -> None:
        """Forget the rollout. The evaluator stays open: it is the caller's."""
        self._rollout = None
