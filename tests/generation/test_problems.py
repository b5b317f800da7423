"""Problems of KernelBench in the loop: the model reads the problem's file and writes a `ModelNew`."""

from __future__ import annotations

from pathlib import Path

import pytest

from generation.test_run import Watcher
from torchstone.backends import BackendOptions
from torchstone.backends.generated import GeneratedBackend
from torchstone.backends.kernelbench_solutions import SolutionsBackend
from torchstone.generation import GenerationRequest, GenerationResult, generate
from torchstone.generation.providers import ModelRequest, ScriptedProvider
from torchstone.schema import SourceFiles
from torchstone.schema.generation import Judged, NoCode

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
FUNCTION = "def scaled_relu(x, weight):\n    return (x * weight).clamp(min=0)\n"
SOLUTION = """import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(features))

    def forward(self, x):
        y = x * self.weight
        return torch.where(y <= 0, torch.zeros_like(y), y)
"""
REPLIES = (FUNCTION, SOLUTION.replace("y <= 0", "y <= 0.5"), SOLUTION)
OPERATOR = "kernelbench.level1__1_Scaled_ReLU.default"
LEVEL_1 = Path(__file__).parents[3] / "shared" / "data" / "kernelbench_level1"


def carry_out(folder: Path, source: Path, *operators: str) -> tuple[GenerationResult, ScriptedProvider]:
    def script(request: ModelRequest) -> str:
        return f"```python\n{REPLIES[request.number - 1]}```"

    provider = ScriptedProvider(script)
    request = GenerationRequest(
        suite="kernelbench", source=str(source), operators=operators or None, dsl="pytorch", device="cpu",
        max_attempts=3, output_dir=folder, run_id="mine",
    )  # fmt: skip
    return generate(request, Watcher(), provider=provider), provider


def test_a_model_solves_a_problem_file(tmp_path: Path) -> None:
    level = tmp_path / "problems" / "level1"
    level.mkdir(parents=True)
    (level / "1_Scaled_ReLU.py").write_text(PROBLEM)
    result, provider = carry_out(tmp_path / "kernels", level.parent, "level1__1_Scaled_ReLU")
    outcomes = [attempt.outcome for attempt in result.attempts]
    assert [type(outcome) for outcome in outcomes] == [NoCode, Judged, Judged], outcomes
    assert [attempt.right for attempt in result.attempts] == [False, False, True], outcomes
    assert PROBLEM.strip() in provider.requests[0].messages[0].text
    assert "does not define the entry point `ModelNew`" in provider.requests[1].messages[-1].text
    assert "not right. 0 of 1 case agree" in provider.requests[2].messages[-1].text
    folder = result.folder / "level1__1_Scaled_ReLU"
    names = {path.name for path in folder.iterdir()}
    assert {"best.json", "transcript.md", "level1__1_Scaled_ReLU_attempt_3.py"} <= names
    assert "--backend kernelbench" in (result.folder / "README.md").read_text()

    for root in (tmp_path / "kernels", result.folder):
        backend = SolutionsBackend(BackendOptions(root))
        kernel = backend.implementation(OPERATOR)
        assert kernel is not None
        assert kernel.reference.where.endswith("level1__1_Scaled_ReLU_attempt_3.py")
        assert backend.unmatched([OPERATOR]) == []
    generated = GeneratedBackend(BackendOptions(result.folder)).implementation(OPERATOR)
    assert generated is not None
    assert isinstance(generated.origin, SourceFiles)
    assert generated.origin.entry == "ModelNew"


@pytest.mark.slow
@pytest.mark.skipif(not LEVEL_1.is_dir(), reason="the problem files of KernelBench are not here")
def test_problems_of_kernelbench_are_asked_for(tmp_path: Path) -> None:
    """None of the replies solves it: what is asked and how it is judged is what counts."""
    (name,) = [path.stem for path in LEVEL_1.glob("*HingeLoss.py")]
    small = tmp_path / "level1"
    small.mkdir()
    text = (LEVEL_1 / f"{name}.py").read_text().replace("32768", "64")
    (small / f"{name}.py").write_text(text)
    result, provider = carry_out(tmp_path / "kernels", small)
    assert text.strip() in provider.requests[0].messages[0].text
    assert [type(attempt.outcome) for attempt in result.attempts] == [NoCode, Judged, Judged]
