"""Problems of KernelBench as tasks: from a folder of files to a reward."""

from __future__ import annotations

from pathlib import Path

from gym.kernels import reply
from torchstone.api.run_now import run_now
from torchstone.executors import FakeExecutor
from torchstone.gym import Evaluator
from torchstone.schema import Crashed, Job, SourceFiles, Verdict

PROBLEM = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return torch.relu(x * self.weight)


def get_inputs():
    return [torch.rand(16, 32)]


def get_init_inputs():
    return [32]
"""
SOLUTION = """import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(features))

    def forward(self, x):
        y = x * self.weight
        return torch.where(y < 0, 0, y)
"""


CUDA_IN_PYTHON = '''class ModelNew(nn.Module):
    def forward(self, x):
        return load_inline(
            "scale", """
#include <torch/extension.h>
""")
'''


def test_a_solution_that_is_no_valid_python_is_not_taken_for_cpp(tmp_path: Path) -> None:
    (tmp_path / "1_Scaled_ReLU.py").write_text(PROBLEM)
    given = {"suite": "kernelbench", "source": str(tmp_path), "split": "all", "device": "cpu", "measured": False}
    seen: list[tuple[str, str]] = []

    def decide(job: Job) -> Verdict:
        assert isinstance(job.implementation.origin, SourceFiles)
        seen.append((job.implementation.origin.files[0].name, job.implementation.language))
        return Crashed("load", "exception", "SyntaxError")

    with Evaluator(executor=FakeExecutor(decide), language="cpp", **given) as evaluator:
        operator = evaluator.tasks[0].operator
        evaluator.turns_now([(reply(text), operator) for text in (SOLUTION.replace("):", ")"), CUDA_IN_PYTHON)])
    assert seen == [("kernel.py", "python")] * 2


def test_a_problem_is_a_task_and_its_solution_earns_a_reward(tmp_path: Path) -> None:
    (tmp_path / "1_Scaled_ReLU.py").write_text(PROBLEM)
    given = {"suite": "kernelbench", "source": str(tmp_path), "split": "all", "device": "cpu", "measured": False}
    with Evaluator(**given) as evaluator:
        (task,) = evaluator.tasks
        assert task.entry == "ModelNew"
        assert PROBLEM.strip() in task.prompt
        right, wrong = evaluator.turns_now(
            [(reply(text), task.operator) for text in (SOLUTION, SOLUTION.replace("self.weight\n", "2\n"))]
        )
        reference = run_now(evaluator.evaluate_reference(task.operator))
    assert (right.verdict, right.reward) == ("agrees", 0.3), right.feedback
    assert right.added_imports == ("import torch",)
    assert (wrong.verdict, wrong.reward) == ("disagrees", 0.0), wrong.feedback
    assert reference.agrees
