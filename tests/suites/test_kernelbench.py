"""Problem files against solutions, with the real program."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
import unittest.mock
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from torchstone import model_operators
from torchstone.backends import BackendOptions
from torchstone.backends.kernelbench_solutions import SolutionsBackend
from torchstone.backends.source_files import MAX_BYTES
from torchstone.backends.torch_compile import CompileBackend
from torchstone.errors import UsageError
from torchstone.isolation.confined_handle import Confined
from torchstone.schema import WEIGHTS_FILE, AsMade, Normal, Sequence, SourceFiles, Tensor, Uniform, with_problem
from torchstone.suites import CaseQuery
from torchstone.suites.kernelbench import KernelBenchSuite, ProblemReading, operator_of, problems_in

HEAD = "import torch\nimport torch.nn as nn\n"
LINEAR = """
class Model(nn.Module):
    def __init__(self, features, out):
        super().__init__()
        self.linear = nn.Linear(features, out)
        self.norm = nn.BatchNorm1d(out)
    def forward(self, x):
        return self.norm(self.linear(x))
def get_inputs(): return [torch.rand(24, 16)]
def get_init_inputs(): return [16, 8]
"""
SCALED = """
class Model(nn.Module):
    def forward(self, x, factor):
        return torch.relu(x) * factor, x.sum(0)
def get_inputs(): return [torch.rand(9, 7), 2.5]
"""
DROPOUT = """
class Model(nn.Module):
    def forward(self, x): return torch.dropout(x, 0.5, True)
def get_inputs(): return [torch.rand(9, 7)]
"""
OWN_LINEAR = (
    LINEAR[: LINEAR.index("def get_inputs")]
    .replace("Model", "ModelNew")
    .replace(
        "self.norm(self.linear(x))",
        "self.normed(x @ self.linear.weight.t() + self.linear.bias)\n"
        "    def normed(self, x):\n"
        "        norm = self.norm\n"
        "        norm.num_batches_tracked += 1\n"
        "        seen = norm.running_mean, norm.running_var\n"
        "        return torch.nn.functional.batch_norm(x, *seen, norm.weight, norm.bias, True)",
    )
)
WITHOUT_STATISTICS = OWN_LINEAR.replace("*seen", "None, None")
AVERAGE = """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("seen", torch.zeros(width))
    def forward(self, x):
        self.seen = self.seen * 0.9 + x.mean(0) * 0.1
        return x + self.seen
def get_inputs(): return [torch.rand(24, 12)]
def get_init_inputs(): return [12]
"""
OWN_AVERAGE = (
    AVERAGE[: AVERAGE.index("def get_inputs")]
    .replace("Model", "ModelNew")
    .replace("self.seen = self.seen * 0.9 + x.mean(0) * 0.1", "self.seen.mul_(0.9).add_(x.mean(0), alpha=0.1)")
)
MASKED = """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        mask = torch.tril(torch.ones(width, width)) == 0
        self.register_buffer("hidden", mask.KIND())
        self.register_buffer("seen", torch.zeros(width))
    def forward(self, x):
        return torch.softmax((x @ x.T).masked_fill(self.hidden != 0, float("-inf")), -1) @ x + self.seen.mean()
def get_inputs(): return [torch.randn(12, 9)]
def get_init_inputs(): return [12]
"""
BY_ITSELF = """
class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("hidden", torch.zeros(width, width).KIND())
        self.register_buffer("seen", torch.zeros(width))
    def forward(self, x):
        return torch.nn.functional.scaled_dot_product_attention(
            x, x, x, is_causal=CAUSAL, scale=1.0) + self.seen.mean()
"""
UNSAVED = """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.register_buffer("seen", torch.zeros(width), persistent=False)
    def forward(self, x):
        y = self.linear(x)
        UPDATE
        return y - self.seen
def get_inputs(): return [torch.rand(24, 12)]
def get_init_inputs(): return [12]
"""
OWN_UNSAVED = UNSAVED[: UNSAVED.index("def get_inputs")].replace("Model", "ModelNew")
UPDATE = "self.seen.mul_(0.9).add_(y.mean(0), alpha=0.1)"
POSITIONS = """
class Model(nn.Module):
    def __init__(self, length, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
        angles = torch.arange(length)[:, None] / 10 ** (torch.arange(width) / width)
        self.register_buffer("table", angles.sin(), persistent=False)
        self.register_buffer("offsets", torch.zeros(1).expand(length, 1), persistent=False)
    def forward(self, x):
        return self.linear(x + self.table + self.offsets) @ self.table.T
def get_inputs(): return [torch.randn(9, 12)]
def get_init_inputs(): return [9, 12]
"""
OWN_POSITIONS = """
class ModelNew(nn.Module):
    def __init__(self, length, width):
        super().__init__()
        self.length, self.width = length, width
        self.linear = nn.Linear(width, width)
    def forward(self, x):
        angles = torch.arange(self.length)[:, None] / 10 ** (torch.arange(self.width) / self.width)
        return self.linear(x + angles.sin()) @ angles.sin().T
"""
OWN_TABLE = """
class ModelNew(nn.Module):
    def __init__(self, length, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
        angles = torch.arange(length)[:, None] / 10 ** (torch.arange(width) / width)
        self.register_buffer("table", angles.sin().T.contiguous())
        self.register_buffer("scratch", torch.zeros(3), persistent=False)
    def forward(self, x):
        return self.linear(x + self.table.T) @ self.table
"""
OTHER_WEIGHTS = OWN_LINEAR.replace("BatchNorm1d(out)", "BatchNorm1d(out, affine=False)")
RIGHT = "class ModelNew(nn.Module):\n    def forward(self, x, factor): return factor * x.clamp(min=0), x.sum(0)\n"
WRONG = RIGHT.replace("clamp(min=0)", "abs()")


def write(folder: Path, **texts: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(HEAD + text)
    return folder


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("problems")
    write(
        root / "level1",
        **{"1_Linear": LINEAR, "2_Scaled": SCALED, "3_Dropout": DROPOUT, "4_Broken": "class Model: 1/0"},
    )
    write(root / "level1", **{"4_Broken": "class Model: 1/0\ndef get_inputs(): pass"})
    write(root / "level2", **{"1_Scaled": SCALED, "2_Linear": LINEAR})
    write(root, readme_maker="def main(): pass")
    return root


@pytest.fixture(scope="module")
def suite() -> KernelBenchSuite:
    return KernelBenchSuite()


def test_every_problem_is_a_case_or_has_a_reason(problems: Path, suite: KernelBenchSuite) -> None:
    query = CaseQuery(source=str(problems))
    cases = suite.cases(query)
    assert [case.operator for case in cases] == [
        "kernelbench.level1__1_Linear.default",
        "kernelbench.level1__2_Scaled.default",
        "kernelbench.level2__1_Scaled.default",
        "kernelbench.level2__2_Linear.default",
    ]
    assert suite.left_out(query) == {
        "3_Dropout.py: the model returns a different result each time (dropout, random numbers)": 1,
        "4_Broken.py: ZeroDivisionError: division by zero": 1,
    }


def test_weights_are_arguments_of_the_size_that_the_model_makes_them(problems: Path, suite: KernelBenchSuite) -> None:
    (linear, *_) = suite.cases(CaseQuery(("level1__1_Linear",), source=str(problems)))
    weights, x = linear.args
    assert isinstance(weights, Sequence)
    first = weights.items[0]
    assert isinstance(first, Tensor)
    assert first.shape == (8, 16)
    assert isinstance(first.fill, Uniform)
    assert -0.25 <= first.fill.low < first.fill.high <= 0.25, "a linear layer of 16 features begins that small"
    assert isinstance(x, Tensor)
    assert x.shape == (24, 16)
    assert linear.timed
    assert not linear.jitter


def test_scales_are_of_both_signs_unless_the_model_asks_for_one(tmp_path: Path) -> None:
    """Who pools before he multiplies by a scale is right only where it is positive; variances are."""
    logarithm = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(7))
    def forward(self, x): return x * torch.log(self.scale)
def get_inputs(): return [torch.rand(9, 7)]
"""
    refusing = logarithm.replace("return x", "return x / math.sqrt(float(self.scale.min()))").replace(
        "class", "import math\nclass"
    )
    source = write(tmp_path, **{"1_Linear": LINEAR, "2_Log": logarithm, "3_Refuses": refusing})
    lows: list[list[bool]] = []
    for case in KernelBenchSuite().cases(CaseQuery(source=str(source))):
        assert isinstance(case.args[0], Sequence)
        fills = [weight.fill for weight in case.args[0].items if isinstance(weight, Tensor)]
        lows.append([fill.low < 0 for fill in fills if isinstance(fill, Uniform)])
    linear, bias, scale, variance = True, True, True, False
    assert lows == [[linear, bias, scale, variance], [False], [False]]


@pytest.mark.parametrize(
    ("path", "operator"),
    [
        ("level1/19_ReLU.py", "kernelbench.level1__19_ReLU.default"),
        ("19_ReLU.py", "kernelbench.p19_ReLU.default"),
        ("a b/c-d.py", "kernelbench.a_b__c_d.default"),
    ],
)
def test_names_of_files_are_names_of_operators(path: str, operator: str) -> None:
    assert operator_of(Path(path)) == operator


def test_a_folder_without_problems_is_told(tmp_path: Path) -> None:
    for source, text in ((None, "no problems of its own"), ("nowhere", "no folder"), (str(tmp_path), "no file in")):
        with pytest.raises(UsageError, match=text):
            problems_in(source)


@pytest.mark.parametrize(
    "names",
    [
        ("level1/19_ReLU", "kernelbench.level1__19_ReLU.default"),
        ("19_ReLU", "kernelbench.level1__19_ReLU.default"),
        ("19_ReLU", "kernelbench.p19_ReLU.default"),
        ("runs/level_1_problem_19_sample_0_kernel", "kernelbench.level1__19_ReLU.default"),
    ],
)
def test_a_solution_is_found_by_the_problems_name(tmp_path: Path, names: tuple[str, str]) -> None:
    file, operator = names
    write((tmp_path / file).parent, **{Path(file).name: RIGHT})
    found = SolutionsBackend(BackendOptions(tmp_path)).implementation(operator)
    assert found is not None
    assert isinstance(found.origin, SourceFiles)
    assert found.origin.entry == "ModelNew"
    assert SolutionsBackend(BackendOptions(tmp_path)).implementation("kernelbench.level1__20_GELU.default") is None
    assert SolutionsBackend(BackendOptions(tmp_path)).implementation("aten.relu.default") is None


def test_a_solution_that_cannot_be_read_is_a_problem_and_is_not_offered(tmp_path: Path) -> None:
    outside = write(tmp_path / "outside", secret=RIGHT)
    folder = write(tmp_path / "kernels", **{"1_Right": RIGHT, "2_Large": RIGHT + "#" * MAX_BYTES})
    (folder / "3_Link.py").symlink_to(outside / "secret.py")
    (folder / "4_Gone.py").symlink_to(folder / "nowhere.py")
    (folder / "5_Inside.py").symlink_to(folder / "1_Right.py")
    (folder / "6_Latin.py").write_bytes("# \u00e9\n".encode("latin-1"))
    (folder / "p7_Best").mkdir()
    (folder / "p7_Best" / "best.json").symlink_to(folder / "nowhere.json")
    backend = SolutionsBackend(BackendOptions(folder))
    reasons = {
        "2_Large.py": "too large: more than 4 MiB of source",
        "3_Link.py": "3_Link.py is a link out of the kernels folder; copy what it names",
        "4_Gone.py": "4_Gone.py is a link to nothing",
        "6_Latin.py": "6_Latin.py is not UTF-8 (byte 2); save it as UTF-8",
    }
    assert {problem.where: problem.reason for problem in backend.problems()} == reasons
    operators = {path.name: operator_of(Path(path.name)) for path in folder.glob("*.py")}
    offered = {name for name, operator in operators.items() if backend.implementation(operator) is not None}
    assert offered == {"1_Right.py", "5_Inside.py"}
    assert backend.why_missing(operators["3_Link.py"]) == f"3_Link.py: {reasons['3_Link.py']}"
    assert backend.unmatched([]) == ["1_Right.py", "5_Inside.py"]
    nothing = "kernelbench.p7_Best.default"
    assert backend.implementation(nothing) is None
    assert backend.why_missing(nothing) == f"{folder} has no solution of this problem's name"


def test_a_solution_without_permission_is_a_problem() -> None:
    user = os.geteuid()
    with tempfile.TemporaryDirectory() as name:  # not tmp_path: other users may not enter that
        os.chmod(name, 0o755)
        (write(Path(name), **{"1_Right": RIGHT}) / "1_Right.py").chmod(0)
        os.seteuid(user or 65534)  # root may read everything
        try:
            backend = SolutionsBackend(BackendOptions(Path(name)))
        finally:
            os.seteuid(user)
    assert [(problem.where, problem.reason) for problem in backend.problems()] == [("1_Right.py", "permission denied")]


def test_the_compiler_takes_a_model_as_a_whole() -> None:
    found = CompileBackend(BackendOptions()).implementation("kernelbench.level1__19_ReLU.default")
    assert found is not None
    assert isinstance(found.origin, SourceFiles)
    assert found.origin.entry == "compiled"


def judged(folder: Path, problems: Path, solutions: Path, *options: str) -> dict[str, dict[str, Any]]:
    """The records of a run, by the names of the problems."""
    command = ("run", "--suite", "kernelbench", "--source", str(problems), "--backend", "kernelbench", "--json")
    options = ("--kernels-dir", str(solutions), "--device", "cpu", "--effort", "quick", "--run-id", "a", *options)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    outcome = subprocess.run(
        [sys.executable, "-m", "torchstone", *command, *options],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert outcome.returncode in (0, 1), outcome.stderr
    lines = (folder / "torchstone_runs" / "a" / "records.jsonl").read_text().splitlines()
    return {json.loads(line)["case"]["operator"].split(".")[1]: json.loads(line) for line in lines}


def test_solutions_are_judged_in_one_run(problems: Path, tmp_path: Path) -> None:
    solutions = tmp_path / "solutions"
    write(solutions / "level1", **{"1_Linear": OWN_LINEAR, "2_Scaled": WRONG})
    write(solutions / "level2", **{"1_Scaled": RIGHT, "2_Linear": OTHER_WEIGHTS})
    records = judged(tmp_path, problems, solutions, "--no-measure")
    verdicts = {name: record["verdict"] for name, record in records.items()}
    assert {name: verdict["type"] for name, verdict in verdicts.items()} == {
        "level1__1_Linear": "agrees",
        "level1__2_Scaled": "disagrees",
        "level2__1_Scaled": "agrees",
        "level2__2_Linear": "unsupported",
    }
    assert "weights are not those of Model" in verdicts["level2__2_Linear"]["reason"]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Problems that differ in what their models take, one after the other in the same workers of ours."""
    folder = tmp_path_factory.mktemp("measured")
    problems = write(folder / "problems", **{"1_Linear": LINEAR, "2_Average": AVERAGE, "3_Linear": LINEAR})
    solutions = {"1_Linear": OWN_LINEAR, "2_Average": OWN_AVERAGE, "3_Linear": WITHOUT_STATISTICS}
    return judged(folder, problems, write(folder / "solutions", **solutions))


@pytest.mark.slow
def test_each_problem_has_its_own_reference(measured: dict[str, dict[str, Any]]) -> None:
    for name in ("p1_Linear", "p2_Average"):
        record = measured[name]
        assert record["verdict"]["type"] == "agrees", record["verdict"]
        assert record["attempts"] == 1
        assert record["measurement"] is not None


@pytest.mark.adversary
@pytest.mark.slow
def test_statistics_that_are_not_updated_are_wrong(measured: dict[str, dict[str, Any]]) -> None:
    verdict = measured["p3_Linear"]["verdict"]
    assert verdict["type"] == "disagrees"
    assert "argument 4 after the call" in verdict["message"]


@pytest.mark.slow
def test_a_buffer_that_means_something_is_as_the_model_makes_it(tmp_path: Path) -> None:
    """A mask of random values would be another model: who leaves it out, right, and who applies it, wrong."""
    kinds = ("float", "bool", "long")
    texts = {f"{place}_{kind}": MASKED.replace("KIND", kind) for place, kind in enumerate(kinds)}
    problems = write(tmp_path / "problems", **texts)
    (case, *_) = KernelBenchSuite().cases(CaseQuery(source=str(problems)))
    assert isinstance(case.args[0], Sequence)
    assert [type(weight.fill) for weight in case.args[0].items if isinstance(weight, Tensor)] == [AsMade, Normal]
    for causal in (True, False):
        own = {
            f"{p}_{kind}": BY_ITSELF.replace("KIND", kind).replace("CAUSAL", f"{causal}")
            for p, kind in enumerate(kinds)
        }
        folder = tmp_path / f"{causal}"
        records = judged(write(folder), problems, write(folder / "solutions", **own), "--no-measure")
        assert [record["verdict"]["type"] for record in records.values()] == ["agrees" if causal else "disagrees"] * 3


BUFFER = 'self.register_buffer("seen", torch.zeros(width), persistent=False)'
OWN_SAME = POSITIONS[: POSITIONS.index("def get_inputs")].replace("Model", "ModelNew")
WITH_STATE = {
    "1_Updates": OWN_UNSAVED.replace("UPDATE", "self.seen = self.seen * 0.9 + 0.1 * y.mean(0)"),
    "2_Saves": OWN_UNSAVED.replace("UPDATE", UPDATE).replace(", persistent=False", ""),
    "3_Renames": OWN_UNSAVED.replace("UPDATE", UPDATE).replace("seen", "mean"),
    "4_Forgets": OWN_UNSAVED.replace("UPDATE", "").replace("- self.seen", "- (self.seen * 0.9 + 0.1 * y.mean(0))"),
    "5_Lacks": OWN_UNSAVED.replace("UPDATE", "").replace("- self.seen", "- y.mean(0) * 0.1").replace(BUFFER, ""),
    "6_Silent": OWN_UNSAVED.replace("UPDATE", "").replace("y - self.seen", "y - y.mean(0)"),
}
WITH_TABLES = {
    "11_Computes": OWN_POSITIONS,
    "12_Transposes": OWN_TABLE,
    "13_Same": OWN_SAME,
    "14_Ignores": OWN_SAME.replace("x + self.table", "x"),
}


@pytest.fixture(scope="module")
def unsaved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Solutions of problems with buffers that ``state_dict`` leaves out, judged in one run."""
    folder = tmp_path_factory.mktemp("unsaved")
    texts = dict.fromkeys(WITH_STATE, UNSAVED.replace("UPDATE", UPDATE)) | dict.fromkeys(WITH_TABLES, POSITIONS)
    texts["6_Silent"] = texts["6_Silent"].replace("y - self.seen", "y - y.mean(0)")
    solutions = write(folder / "solutions", **WITH_STATE, **WITH_TABLES)
    return judged(folder, write(folder / "problems", **texts), solutions, "--no-measure")


@pytest.mark.adversary
def test_state_in_buffers_that_are_not_saved_is_compared(unsaved: dict[str, dict[str, Any]]) -> None:
    """Otherwise they would not be drawn, nor would anyone see what becomes of them."""
    assert {f"p{name}": unsaved[f"p{name}"]["verdict"]["type"] for name in WITH_STATE} == {
        "p1_Updates": "agrees",
        "p2_Saves": "agrees",
        "p3_Renames": "agrees",
        "p4_Forgets": "disagrees",
        "p5_Lacks": "unsupported",
        "p6_Silent": "disagrees",
    }
    for name in ("p4_Forgets", "p6_Silent"):
        assert "argument 0 after the call" in unsaved[name]["verdict"]["message"]


def test_what_is_neither_saved_nor_written_to_is_a_solutions_own_affair(unsaved: dict[str, dict[str, Any]]) -> None:
    """It follows from how the model is made: a solution may compute it, or keep it in another form."""
    assert {f"p{name}": unsaved[f"p{name}"]["verdict"]["type"] for name in WITH_TABLES} == {
        "p11_Computes": "agrees",
        "p12_Transposes": "agrees",
        "p13_Same": "agrees",
        "p14_Ignores": "disagrees",
    }
    weights = unsaved["p13_Same"]["case"]["args"][0]["items"]
    assert [weight["fill"]["type"] for weight in weights] == ["as_made", "as_made", "uniform", "uniform"]


KEPT_ELSEWHERE = {
    "1_tensor": ("self.kept = torch.zeros(width)", "self.kept = self.kept * 0.9 + y.mean(0)"),
    "2_list": ("self.kept = [torch.zeros(width)]", "self.kept[0].copy_(y.mean(0))"),
    "3_first": ("self.kept = None", "self.kept = y.mean(0) if self.kept is None else self.kept"),
    "4_number": ("self.kept = 0", "self.kept += 1"),
    "5_module": ("self.kept = [nn.BatchNorm1d(width)]", "y = self.kept[0](y)"),
}
ONCE = "if self.kept is None: self.kept = torch.arange(12.0)"
MADE_ONCE = {
    "6_cached": ("self.kept = None", ONCE),
    "7_buffer": ('self.register_buffer("kept", None, persistent=False)', ONCE),
}
COUNT = 'self.register_buffer("count", torch.full((1,), 0.5))'
SELDOM = "self.count += 1\n        if float(self.count) not in (1.5, 2.5): self.seen.copy_(y[0])"
"""Neither of the problem's first calls writes to it, but calls with another count do."""


def test_state_outside_of_buffers_leaves_a_problem_out_and_a_cache_does_not(tmp_path: Path) -> None:
    buffer = 'self.register_buffer("seen", torch.zeros(width), persistent=False)'
    texts = {
        name: UNSAVED.replace(buffer, made).replace("UPDATE", update).replace(" - self.seen", "")
        for name, (made, update) in (KEPT_ELSEWHERE | MADE_ONCE).items()
    }
    texts["8_seldom"] = UNSAVED.replace(buffer, f"{COUNT}\n        {buffer}").replace("UPDATE", SELDOM)
    suite, query = KernelBenchSuite(), CaseQuery(source=str(write(tmp_path, **texts)))
    found = {case.operator.split(".")[1]: case for case in suite.cases(query)}
    assert found.keys() == {"p6_cached", "p7_buffer", "p8_seldom"}
    reason = "the model keeps state outside of its parameters and buffers"
    assert suite.left_out(query) == {f"{name}.py: {reason}": 1 for name in KEPT_ELSEWHERE}
    model = found["p8_seldom"].model
    assert model is not None
    assert (model_operators.weights_among({file.name: file.text for file in model.files}) or {})["seen"] == "buffer"


def test_nobody_needs_torchs_compiler_to_know_a_problems_weights(tmp_path: Path) -> None:
    """To make such a model without memory imports it, which takes seconds in every process."""
    problems = write(tmp_path / "problems", **{"1_Masked": MASKED.replace("KIND", "float")})
    (case, *_) = KernelBenchSuite().cases(CaseQuery(source=str(problems)))
    assert case.model is not None
    text = json.dumps([file.text for file in with_problem(None, case.model).files])
    program = f"""
import json, sys, torch
from torchstone import model_operators as models
text, weights = json.loads({text!r})
problem = {{}}
exec(text, problem)
known = models.weights_among({{{WEIGHTS_FILE!r}: weights}})
assert known == {{"hidden": "buffer", "seen": "buffer"}}, known
weights = [torch.zeros(12, 12), torch.ones(12)]
call = models.ModelFunction(problem["Model"], problem, known).bound((weights, torch.rand(12, 9)), {{}})
assert call()[0].shape == (12, 9)
assert "torch._dynamo" not in sys.modules
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_bound_model_is_called_on_the_given_memory() -> None:
    problem: dict[str, Any] = {}
    exec(HEAD + AVERAGE, problem)
    seen, x = torch.ones(12), torch.rand(24, 12)
    call = model_operators.ModelFunction(problem["Model"], problem).bound(([seen], x), {})
    for start in (1.0, 5.0):
        seen.fill_(start)
        (result,) = call()
        torch.testing.assert_close(seen, torch.full((12,), 0.9 * start) + x.mean(0) * 0.1)
        torch.testing.assert_close(result, x + seen)


def test_a_bound_model_has_its_weights_in_the_given_memory() -> None:
    problem: dict[str, Any] = {}
    exec(HEAD + LINEAR, problem)
    weights = [
        torch.rand_like(tensor.float()).to(tensor.dtype) for tensor in problem["Model"](16, 8).state_dict().values()
    ]
    x = torch.rand(24, 16)
    function = model_operators.ModelFunction(problem["Model"], problem)
    kept = [weight.clone() for weight in weights]
    expected = function([weight.clone() for weight in weights], x)
    call = function.bound((weights, x), {})
    with unittest.mock.patch("torch.func.functional_call", side_effect=AssertionError):
        assert torch.equal(call()[0], expected[0])
    assert [torch.equal(one, other) for one, other in zip(weights, kept, strict=True)] == [True] * 4 + [False] * 3


def test_a_model_may_return_what_it_was_given() -> None:
    problem: dict[str, Any] = {}
    exec(HEAD + AVERAGE.replace("return x + self.seen", "return self.seen"), problem)
    function, seen, x = model_operators.ModelFunction(problem["Model"], problem), torch.ones(12), torch.rand(24, 12)
    first = function([seen], x)[0].clone()
    function([torch.zeros(12)], x)
    torch.testing.assert_close(first, torch.full((12,), 0.9) + x.mean(0) * 0.1)
    assert torch.equal(seen, first)


LARGE = """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
    def forward(self, x): return torch.log(x) BODY
def get_inputs(): return [torch.rand(SIZE, 4096) + 0.5]
def get_init_inputs(): return [4096]
"""


def large(body: str = "* self.scale", size: int = 2560) -> str:
    return LARGE.replace("BODY", body).replace("SIZE", str(size))


@pytest.mark.slow
def test_large_problems_are_run_once_on_their_own_inputs_and_once_on_drawn_ones(tmp_path: Path) -> None:
    texts = {
        "1_Right": large(),
        "2_Draws": large("* torch.rand(1)"),
        "3_Keeps": large("* self.count()").replace(
            "def forward",
            "def count(self):\n        self.n = vars(self).get('n', 0) + 1\n        return self.n\n    def forward",
        ),
        "4_Huge": large(size=1 << 30),
    }
    suite, query = KernelBenchSuite(), CaseQuery(source=str(write(tmp_path, **texts)))
    (case,) = suite.cases(query)
    assert case.operator == "kernelbench.p1_Right.default"
    assert isinstance(case.args[1], Tensor)
    assert case.args[1].shape == (2560, 4096)
    assert isinstance(case.args[1].fill, Uniform), "half of the normal values have no logarithm"
    reasons = sorted(suite.left_out(query))
    assert reasons[0] == "2_Draws.py: the model draws random numbers"
    assert reasons[1] == "3_Keeps.py: the model keeps state outside of its parameters and buffers"
    assert "GiB to be read" in reasons[2]
    assert "GiB can be used for it" in reasons[2]


def test_what_was_learnt_of_a_problem_is_kept_until_its_text_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = write(tmp_path / "problems", **{"1_Linear": LINEAR, "2_Scaled": SCALED})
    query = CaseQuery(source=str(folder))
    first = KernelBenchSuite().cases(query)
    with unittest.mock.patch("torchstone.suites.kernelbench.Confined", side_effect=AssertionError):
        assert KernelBenchSuite().cases(query) == first
    write(folder, **{"2_Scaled": SCALED.replace("9, 7", "9, 8")})
    again = KernelBenchSuite().cases(query)
    assert again[0] == first[0]
    assert again[1] != first[1]


HUGE = """
class Model(nn.Module):
    def forward(self, x): return x + 1
def get_inputs(): return [torch.rand(1 << 20, 1 << 20)]
"""


def test_a_problem_that_needs_more_memory_than_there_is_is_not_read_again_until_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = write(tmp_path / "problems", **{"1_Scaled": SCALED, "2_Huge": HUGE})
    query = CaseQuery(source=str(folder))
    first = KernelBenchSuite()
    assert len(first.cases(query)) == 1
    (reason,) = first.left_out(query)
    assert reason.startswith("2_Huge.py: needs about 16384.0 GiB to be read")
    with unittest.mock.patch("torchstone.suites.kernelbench.Confined", side_effect=AssertionError):
        assert KernelBenchSuite().left_out(query) == {reason: 1}
    arriving = KernelBenchSuite().arriving(query)
    assert (len(arriving.ready), arriving.awaited) == (1, ())
    for figure in ("host_bytes", "usable_host_bytes"):
        monkeypatch.setattr(f"torchstone.suites.problem_memory_reservation.{figure}", lambda: 1 << 50)
    assert KernelBenchSuite().arriving(query).awaited == ("kernelbench.p2_Huge.default",)


def test_problems_arrive_while_others_are_read_and_reading_can_be_stopped(tmp_path: Path) -> None:
    names = {f"{number}_Scaled": SCALED.replace("9, 7", f"9, {number}") for number in range(1, 5)}
    folder = write(tmp_path / "problems", **names)
    suite, turns, is_stopped = KernelBenchSuite(), itertools.count(), threading.Event()

    @contextlib.contextmanager
    def quiet() -> Iterator[None]:
        """Only the first problem is read before the stop, however slow this thread is."""
        if next(turns) > 0:
            is_stopped.wait()
        yield

    arrivals = suite.arriving(CaseQuery(source=str(folder)), quiet)
    assert len(arrivals.awaited) == 4
    arriving = iter(arrivals)
    operator, case = next(arriving)
    assert case is not None
    assert case.operator == operator
    arrivals.stop()
    is_stopped.set()
    assert list(arriving) == []
    assert len(arrivals.read) == 1


def test_a_problem_file_that_is_gone_leaves_no_process_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Confined] = []

    class Noted(Confined):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            started.append(self)

    monkeypatch.setattr("torchstone.suites.kernelbench.Confined", Noted)
    monkeypatch.setattr("torchstone.suites.kernelbench._MOST_READERS", {"cpu": 1})
    paths = [tmp_path / f"{number}_Scaled.py" for number in range(2)]
    write(tmp_path, **{"0_Scaled": SCALED})
    reading = ProblemReading([(path, operator_of(Path(path.name))) for path in paths], "cpu", contextlib.nullcontext)
    found = {path.name: read for path, _, read in reading}
    assert found["0_Scaled.py"].case is not None
    assert found["1_Scaled.py"].exclusion is not None
    assert "No such file" in found["1_Scaled.py"].exclusion.reason
    assert [process._process.poll() is not None for process in started] == [True]


PRYING = """
import os, socket
def look():
    try:
        os.listdir(HOME)
        return 1
    except OSError:
        pass
    try:
        socket.create_connection(("127.0.0.1", 9), timeout=1)
    except ConnectionRefusedError:
        return 2
    except OSError:
        return 0
SEEN = look()
class Model(nn.Module):
    def forward(self, x):
        if SEEN or os.getuid() == 0: raise ValueError("not in a sandbox")
        return x + 1
def get_inputs(): return [torch.rand(9, 7)]
"""


@pytest.mark.adversary
def test_a_problem_file_has_no_rights_while_it_is_read_and_while_it_is_judged(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a process another uid without user namespaces")
    problems = write(tmp_path / "problems", **{"1_Pries": PRYING.replace("HOME", repr(str(tmp_path)))})
    solutions = write(tmp_path / "solutions", **{"1_Pries": OWN_PLUS_ONE})
    records = judged(tmp_path, problems, solutions, "--no-measure")
    assert records["p1_Pries"]["verdict"]["type"] == "agrees", records["p1_Pries"]["verdict"]


OWN_PLUS_ONE = "class ModelNew(nn.Module):\n    def forward(self, x): return 1 + x\n"


def test_a_problem_that_never_ends_is_left_out_with_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchstone.suites.kernelbench._READ_SECONDS", 3.0)
    forever = SCALED.replace("def get_inputs(): return", "def get_inputs():\n    while True: pass\n    return")
    suite = KernelBenchSuite()
    query = CaseQuery(source=str(write(tmp_path, **{"1_Forever": forever, "2_Scaled": SCALED, "3_Ends": ENDS})))
    assert [case.operator for case in suite.cases(query)] == ["kernelbench.p2_Scaled.default"]
    assert suite.left_out(query) == {
        "1_Forever.py: running it once took longer than 3 s on cpu: too large for this machine": 1,
        "3_Ends.py: the process that ran it ended with exit code 3": 1,
    }


ENDS = """
import os
os._exit(3)
class Model(nn.Module): pass
def get_inputs(): pass
"""


def test_levels_are_found_by_name_in_a_checkout_and_alone(tmp_path: Path) -> None:
    write(tmp_path / "KernelBench" / "level1", **{"19_ReLU": SCALED})
    write(tmp_path / "KernelBench" / "level2", **{"1_Linear": LINEAR})
    write(tmp_path / "src" / "prompts", example=SCALED)
    names = {"kernelbench.level1__19_ReLU.default", "kernelbench.level2__1_Linear.default"}
    for source in (tmp_path, tmp_path / "KernelBench"):
        assert {name for _, name in problems_in(str(source))} == names
    level = str(tmp_path / "KernelBench" / "level1")
    for source in (level, str(tmp_path)):
        query = CaseQuery(("level1",), source=source)
        assert KernelBenchSuite().operators(query) == ("kernelbench.level1__19_ReLU.default",)


@pytest.mark.slow
def test_a_speed_can_be_compared_with_torch_compile(tmp_path: Path) -> None:
    write(tmp_path / "problems", **{"1_Scaled": SCALED})
    records = judged(
        tmp_path, tmp_path / "problems", write(tmp_path / "own", **{"1_Scaled": RIGHT}), "--baseline", "compile"
    )
    assert records["p1_Scaled"]["verdict"]["type"] == "agrees", records["p1_Scaled"]["verdict"]
    assert records["p1_Scaled"]["measurement"]["baseline"] == "compile"
    manifest = json.loads((tmp_path / "torchstone_runs" / "a" / "manifest.json").read_text())
    assert manifest["configuration"]["baseline"] == "compile"


def published_problems() -> Path | None:
    """The files of level 1, if the machine has them: they are no part of this repository."""
    named = os.environ.get("TORCHSTONE_KERNELBENCH_LEVEL1")
    root = Path(__file__).parents[2]
    places = [Path(named)] if named else [root.parent / "shared", root.parents[1] / "shared"]
    found = [place if named else place / "data" / "kernelbench_level1" for place in places]
    return next((place for place in found if place.is_dir()), None)


@pytest.mark.slow
@pytest.mark.skipif(published_problems() is None, reason="needs the problem files of KernelBench level 1")
def test_published_problems_are_cases_or_name_the_bytes_that_they_lack() -> None:
    suite, query = KernelBenchSuite(), CaseQuery(("p19_ReLU", "p50_conv_standard_2D__square_input__square_kernel"))
    query = msgspec.structs.replace(query, source=str(published_problems()))
    assert len(suite.operators(query)) == 2
    found = len(suite.cases(query))
    reasons = list(suite.left_out(query))
    assert found + len(reasons) == 2
    assert all("GiB can be used for it" in reason for reason in reasons)


def test_problems_that_are_not_chosen_are_not_read(problems: Path) -> None:
    suite = KernelBenchSuite()
    sampled = suite.cases(CaseQuery(("level2",), source=str(problems), sample=1))
    assert len(sampled) == 1
    assert sampled[0].operator.startswith("kernelbench.level2__")
    assert len(suite._read) == 1


def test_solutions_of_no_problem_are_named(problems: Path, tmp_path: Path) -> None:
    from torchstone.runs.unused_kernels import unused_kernels

    write(tmp_path, **{"1_Linear": RIGHT, "77_Nothing": RIGHT, "notes": "x = 1"})
    write(tmp_path / "run", level_1_problem_2_sample_0_kernel=RIGHT, level_1_problem_2_sample_1_kernel=RIGHT)
    query = CaseQuery(("level1__1_Linear",), source=str(problems))
    found = unused_kernels(SolutionsBackend(BackendOptions(tmp_path)), "kernelbench", KernelBenchSuite(), query, ())
    assert [problem.where for problem in found] == ["77_Nothing.py"]
    assert "ignored" in found[0].reason
