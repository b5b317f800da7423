"""What is shared with a worker on a GPU, and what is not: results that are copied, models of problems, built files."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from torchstone import api
from torchstone.backends import BackendOptions
from torchstone.backends.kernelbench_solutions import SolutionsBackend
from torchstone.executors import ExecutorOptions
from torchstone.executors.local import LocalExecutor
from torchstone.schema import (
    Agrees,
    Case,
    Disagrees,
    Implementation,
    Job,
    Normal,
    Record,
    SourceFile,
    SourceFiles,
    Tensor,
    explain,
    torchs_own,
    with_problem,
)
from torchstone.suites import CaseQuery
from torchstone.suites.kernelbench import KernelBenchSuite

pytestmark = pytest.mark.gpu

DEVICE = "cuda"
RELU = Case("test", "aten.relu.default", (Tensor((1000, 17), "float32", Normal()),), timed=True)
LARGE = Case("test", "aten.relu.default", (Tensor((1 << 22,), "float32", Normal()),))
RIGHT = "def kernel(x): return x.clamp(min=0)"
PROBLEM = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d({width})
    def forward(self, x):
        return self.norm(x), x[1:]
def get_inputs(): return [torch.rand({rows}, {width})]
def get_init_inputs(): return []
"""
FORGETS_THE_BUFFERS = """
    def forward(self, x):
        norm = self.norm
        return torch.nn.functional.batch_norm(x, None, None, norm.weight, norm.bias, True), x[1:]
"""
LOAD_INLINE = """
import os
from pathlib import Path
import torch
from torch.utils import cpp_extension

print("FOUND" if list(Path(os.environ["TORCH_EXTENSIONS_DIR"]).rglob("*.so")) else "BUILDS", flush=True)
CPP = "torch::Tensor wrong_relu(torch::Tensor x);"
CUDA = '''
#include <torch/extension.h>
__global__ void kernel(const float* x, float* y, long n) {
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] < 0 ? 0.5f : x[i];
}
torch::Tensor wrong_relu(torch::Tensor x) {
    auto given = x.contiguous();
    auto result = torch::empty_like(given);
    kernel<<<(given.numel() + 255) / 256, 256>>>(given.data_ptr<float>(), result.data_ptr<float>(), given.numel());
    return result;
}
'''
module = cpp_extension.load_inline(name="wrong", cpp_sources=CPP, cuda_sources=CUDA, functions=["wrong_relu"])

def kernel(x): return module.wrong_relu(x)
"""


def source(text: str) -> Implementation:
    return Implementation("test", RELU.operator, SourceFiles((SourceFile("kernel.py", text),), "kernel"), "python")


def judged(jobs: Sequence[Job], **options: Any) -> list[Record]:
    records = {record.job_key: record for record in LocalExecutor(ExecutorOptions(device=DEVICE, **options)).run(jobs)}
    return [records[job.key] for job in jobs]


def test_results_are_read_in_place_unless_they_are_to_be_copied() -> None:
    wrong = source("def kernel(x): return x.clamp(min=0) + (x > 1.5)")
    jobs = [Job(RELU, source(RIGHT), "quick"), Job(LARGE, source(RIGHT), "quick", measured=False), Job(RELU, wrong)]
    for results in ("read", "copied"):
        found = judged(jobs, results=results)
        verdicts = [record.verdict for record in found]
        assert [type(verdict) for verdict in verdicts] == [Agrees, Agrees, Disagrees], [explain(v) for v in verdicts]
        assert {record.isolation.results for record in found} == {results}
        assert found[0].measurement is not None


@pytest.fixture
def problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Case:
    """A problem with buffers and with a result in an argument's memory; a large one lies on the device."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    rows, width = request.param
    (tmp_path / "problems").mkdir()
    (tmp_path / "problems" / "7_Norm.py").write_text(PROBLEM.format(rows=rows, width=width))
    suite = KernelBenchSuite()
    query = CaseQuery(device_type=DEVICE, source=str(tmp_path / "problems"))
    cases = suite.cases(query)
    assert len(cases) == 1, suite.left_out(query)
    return cases[0]


@pytest.mark.parametrize("problem", [(24, 16), (4096, 2048)], indirect=True, ids=["small", "large"])
@pytest.mark.parametrize("results", ["read", "copied"])
def test_a_problems_model_agrees_with_itself(problem: Case, results: str) -> None:
    (record,) = judged([Job(problem, torchs_own(problem), "quick")], results=results)
    assert isinstance(record.verdict, Agrees), explain(record.verdict)
    assert record.measurement is not None


@pytest.mark.parametrize("problem", [(24, 16), (4096, 2048)], indirect=True, ids=["small", "large"])
def test_a_solution_that_leaves_buffers_as_they_were_disagrees(problem: Case, tmp_path: Path) -> None:
    assert problem.model is not None
    text = problem.model.files[0].text.replace("class Model(", "class ModelNew(")
    text = text[: text.index("    def forward")] + FORGETS_THE_BUFFERS
    (tmp_path / "solutions").mkdir()
    (tmp_path / "solutions" / "7_Norm.py").write_text(text)
    backend = SolutionsBackend(BackendOptions(kernels_dir=tmp_path / "solutions", device_type=DEVICE))
    offered = backend.implementation(problem.operator)
    assert offered is not None
    assert isinstance(offered.origin, SourceFiles)
    offered = msgspec.structs.replace(offered, origin=with_problem(offered.origin, problem.model))
    (record,) = judged([Job(problem, offered, "quick", measured=False)])
    assert isinstance(record.verdict, Disagrees), explain(record.verdict)


@pytest.mark.parametrize("problem", [(4096, 2048)], indirect=True, ids=["large"])
def test_a_compiled_baseline_is_timed_as_the_reference(problem: Case) -> None:
    jobs = [Job(case, torchs_own(case), "quick", baseline="compile") for case in (RELU, problem)]
    for record in judged(jobs):
        assert isinstance(record.verdict, Agrees), explain(record.verdict)
        assert record.measurement is not None
        assert record.measurement.baseline == "compile"


@pytest.mark.skipif(not (shutil.which("ninja") and shutil.which("nvcc")), reason="needs ninja and nvcc")
def test_a_wrong_cuda_kernel_of_load_inline_is_built_once() -> None:
    cases = [Case("test", RELU.operator, (Tensor((size, 64), "float32", Normal()),)) for size in (8, 16, 24)]
    found = judged([Job(case, source(LOAD_INLINE), "quick", measured=False) for case in cases])
    assert all(isinstance(record.verdict, Disagrees) for record in found), [explain(r.verdict) for r in found]
    assert [line for record in found for line in record.log_tail.splitlines() if line in ("BUILDS", "FOUND")] == [
        "BUILDS",
        "FOUND",
        "FOUND",
    ]


def test_later_evaluations_in_one_process_reuse_the_judge() -> None:
    with api.Judge(device=DEVICE, effort="quick") as judge:
        found = [judge.evaluate(f"# {number}\n{RIGHT}", "aten.relu.default", entry="kernel") for number in range(3)]
    assert all(each.agrees for each in found), [each.failures() for each in found]
