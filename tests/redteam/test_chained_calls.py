"""On the CPU, too, a speed is confirmed by calls that wait for one another: real judges, real workers."""

from __future__ import annotations

import pytest

from torchstone.executors.base import ExecutorOptions
from torchstone.executors.local import LocalExecutor
from torchstone.measuring import timing
from torchstone.model_operators import weights_file
from torchstone.schema import (
    Agrees,
    Case,
    Implementation,
    Job,
    Normal,
    Party,
    Record,
    Scalar,
    Sequence,
    SourceFile,
    SourceFiles,
    Tensor,
    explain,
    gradient_operator,
    with_problem,
)

pytestmark = [pytest.mark.adversary, pytest.mark.slow]

X = Tensor((64, 256), "float32", Normal())
POWER = "aten.pow.Tensor_Scalar"
PROBLEM = """\
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.pow(x, 4.0)

def get_inputs():
    return [torch.randn(64, 256)]

def get_init_inputs():
    return []
"""
QUICK = """\
def kernel(x, exponent=4.0):
    square = x * x
    return square * square
"""
IN_PLACE = """\
def kernel(x, exponent):
    return x.mul_(x).mul_(x)
"""
MODEL = """\
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        square = x * x
        return square * square
"""


def job(operator: str, args: tuple[Tensor | Scalar | Sequence, ...], text: str, problem: str = "") -> Job:
    model = SourceFiles((SourceFile("problem.py", problem), weights_file({})), "Model", "problem") if problem else None
    case = Case("tests", operator, args, timed=True, jitter=False, model=model)
    source = SourceFiles((SourceFile("power.py", text),), "ModelNew" if problem else "kernel", "test")
    return Job(case, Implementation("test", operator, with_problem(source, model) if model else source), "quick")


# A plain one is in the corpus: h_fourth_power_by_squares.
JOBS = {
    "in place": job("aten.pow_.Scalar", (X, Scalar(4.0)), IN_PLACE),
    "gradient": job(gradient_operator(POWER), (Sequence((X,)), X, Scalar(4.0)), QUICK),
    "model": job("kernelbench.tests_power.default", (Sequence(()), X), MODEL, PROBLEM),
}


_TRIES = 2
"""On a busy machine a speed may drown in noise: then nothing is to be confirmed."""


@pytest.fixture(scope="module")
def records() -> dict[str, Record]:
    """Of each the first in which something was to be confirmed, or the last."""
    names = {each.key: name for name, each in JOBS.items()}
    found: dict[str, Record] = {}
    for _ in range(_TRIES):
        left = [each for name, each in JOBS.items() if name not in found or not chained(found[name])]
        if not left:
            break
        found |= {names[record.job_key]: record for record in LocalExecutor(ExecutorOptions(device="cpu")).run(left)}
    return found


def chained(record: Record) -> set[Party]:
    blocks = () if record.measurement is None else record.measurement.blocks
    return {block.party for block in blocks if block.way == "chained"}


@pytest.mark.parametrize("name", JOBS)
def test_who_is_faster_is_so_in_chains(name: str, records: dict[str, Record]) -> None:
    verdict = records[name].verdict
    assert isinstance(verdict, Agrees), explain(verdict)
    measurement = records[name].measurement
    assert measurement is not None
    speedup = timing(measurement).speedup
    if speedup is None or speedup.outcome != "faster":
        pytest.skip("on this machine no speed was seen that could be confirmed, in several tries")
    assert chained(records[name]) == {"candidate", "reference", "shim"}
