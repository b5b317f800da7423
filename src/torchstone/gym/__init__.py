"""Reinforcement learning of kernels: tasks, rewards, and an evaluator for many rollouts at once.

`BackendBenchConfig`, `CodeEvaluator`, `run_code` and `eval_code` are the names that other environments use.
"""

from torchstone.gym import reward
from torchstone.gym.completion_reward import CompletionReward
from torchstone.gym.config import EvaluatorConfig, FeedbackLoop, Gpu
from torchstone.gym.environment import KernelEnvironment
from torchstone.gym.evaluator import Evaluator, TurnResult
from torchstone.gym.one_kernel import eval_code, run_code
from torchstone.gym.reward import RewardSettings
from torchstone.gym.rollout import Rollout
from torchstone.gym.splits import Split
from torchstone.gym.tasks import KernelTask

BackendBenchConfig = EvaluatorConfig
CodeEvaluator = Evaluator

__all__ = [
    "BackendBenchConfig",
    "CodeEvaluator",
    "CompletionReward",
    "Evaluator",
    "EvaluatorConfig",
    "FeedbackLoop",
    "Gpu",
    "KernelEnvironment",
    "KernelTask",
    "RewardSettings",
    "Rollout",
    "Split",
    "TurnResult",
    "eval_code",
    "reward",
    "run_code",
]
