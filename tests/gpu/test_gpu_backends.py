"""Backends whose kernels only a GPU can run: torch.compile, and packages where they are installed."""

from __future__ import annotations

import importlib.util

import pytest

from torchstone import registry
from torchstone.backends import BackendOptions
from torchstone.executors import ExecutorOptions
from torchstone.executors.local import LocalExecutor
from torchstone.schema import Agrees, Job, Verdict
from torchstone.suites import CaseQuery

pytestmark = pytest.mark.gpu


def verdicts(name: str, *operators: str, dtypes: tuple[str, ...] = ("float32", "bfloat16")) -> dict[str, Verdict]:
    """Of every case of the operators in the smoke suite."""
    backend = registry.backends.factory(name)(BackendOptions(device_type="cuda"))
    suite = registry.suites.factory("smoke")()
    cases = suite.cases(CaseQuery(operators, dtypes, "cuda"))
    jobs = [Job(case, backend.implementation(case.operator), "quick", measured=False) for case in cases]
    records = LocalExecutor(ExecutorOptions(device="cuda:0", judges_per_device=6)).run(jobs)
    return {f"{record.case.operator} {record.case.label}": record.verdict for record in records}


def test_compiled_operators_agree() -> None:
    found = verdicts("compile", "relu", "add", "add_", "sum", "mm", "_softmax", "transpose")
    assert {case: verdict for case, verdict in found.items() if not isinstance(verdict, Agrees)} == {}


@pytest.mark.skipif(importlib.util.find_spec("flag_gems") is None, reason="flag_gems is not installed")
def test_most_cases_agree_with_flag_gems() -> None:
    """How many do is FlagGems' affair; that its functions are reached with the right arguments is ours."""
    found = verdicts("flag_gems", "relu", "add", "mul", "sum", "mm", "_softmax", "native_layer_norm", "gelu")
    wrong = {case: verdict for case, verdict in found.items() if not isinstance(verdict, Agrees)}
    assert len(wrong) < len(found) / 4, wrong


@pytest.mark.skipif(importlib.util.find_spec("liger_kernel") is None, reason="liger_kernel is not installed")
def test_most_cases_agree_with_liger() -> None:
    found = verdicts("liger", "native_layer_norm", "_softmax")
    wrong = {case: verdict for case, verdict in found.items() if not isinstance(verdict, Agrees)}
    assert len(wrong) < len(found) / 2, wrong
