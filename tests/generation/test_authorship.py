"""Right kernels that only call torch are counted as right, and told apart from those with code of their own."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from feedback.common_failures import stored_records
from generation.test_run import Watcher
from generation.test_scores import RIGHT, WRONG, scores_of, stored, written
from torchstone.cli.generate_report import report
from torchstone.generation import GenerationRequest, generate, read_generation
from torchstone.generation.authorship import authorship_of
from torchstone.generation.providers import ModelRequest, ScriptedProvider
from torchstone.generation.summary import summary_text
from torchstone.schema import Attribution, KernelShare, Record
from torchstone.schema.generation import Judged

TRITON, LIBRARY = KernelShare("mine", "triton", 1, 900), KernelShare("gemm", "library", 1, 100)
TORCH = msgspec.structs.replace(RIGHT, authorship="torch")
OWN = msgspec.structs.replace(RIGHT, authorship="own")


def record(found: Attribution | None, language: str = "python") -> Record:
    right = next(each for each in stored_records("slow_but_right") if each.verdict.__class__.__name__ == "Agrees")
    implementation = msgspec.structs.replace(right.implementation, language=language)
    return msgspec.structs.replace(right, attribution=found, implementation=implementation)


@pytest.mark.parametrize(
    ("found", "language", "expected"),
    [
        (Attribution({"aten.relu.default": 1}), "python", "torch"),
        (Attribution({"aten.copy_.default": 1}), "triton", "own"),
        (Attribution({}), "cpp", "own"),
        (Attribution({"aten.mm.default": 1}), "cpp", "mixed"),
        (Attribution({}, kernels=(TRITON,)), "triton", "own"),
        (Attribution({"aten.mm.default": 1}, kernels=(TRITON, LIBRARY)), "triton", "mixed"),
        (Attribution({"aten.mm.default": 1}, kernels=(LIBRARY,)), "triton", "torch"),
        (Attribution({}, note="no profiler"), "triton", "unknown"),
        (None, "python", "unknown"),
    ],
)
def test_the_authorship_follows_from_what_did_the_work(found: Attribution | None, language: str, expected: str) -> None:
    assert authorship_of([record(found, language)]) == expected


def test_a_triton_file_that_only_calls_torch_is_torchs_work_though_one_case_shows_no_kernel() -> None:
    seen, unseen = Attribution({"aten.mm.default": 1}, kernels=(LIBRARY,)), Attribution({"aten.mm.default": 1})
    assert authorship_of([record(seen, "triton"), record(unseen, "triton")]) == "torch"


def test_a_library_kernel_that_only_copies_is_not_torchs_work() -> None:
    copied = Attribution({"aten.copy_.default": 1}, kernels=(TRITON, LIBRARY))
    assert authorship_of([record(copied, "triton")]) == "own"
    unnamed = Attribution({}, kernels=(TRITON, LIBRARY))
    assert authorship_of([record(unnamed, "triton")]) == "mixed"


def test_a_copy_made_by_torch_is_torchs_work_where_nothing_else_ran() -> None:
    assert authorship_of([record(Attribution({"aten.clone.default": 1}))]) == "torch"


def test_a_python_file_that_builds_code_is_not_torchs_work_alone() -> None:
    found = [record(Attribution({"aten.mm.default": 1}))]
    assert authorship_of(found, "from torch.utils.cpp_extension import load_inline") == "mixed"
    assert authorship_of(found, "import torch") == "torch"


def test_one_case_that_torch_computes_makes_a_kernel_mixed() -> None:
    records = [record(Attribution({}, kernels=(TRITON,))), record(Attribution({"aten.relu.default": 1}))]
    assert authorship_of(records) == "mixed"


def test_scores_and_report_tell_how_many_right_kernels_are_torchs_work(tmp_path: Path) -> None:
    outcomes = {"aten.relu.default": [WRONG, TORCH], "aten.add.Tensor": [TORCH, OWN], "aten.mul.Tensor": [WRONG]}
    scores = scores_of(outcomes)
    assert (scores.right_operators, scores.torch_only_operators) == (2, 1)
    assert scores.correct_with_own_code.value == pytest.approx(1 / 3)
    folder = written(tmp_path / "run", stored(outcomes))
    done = CliRunner().invoke(report, [str(folder)], catch_exceptions=False)
    rows = {line.split("|")[1].strip(): line for line in done.output.splitlines() if line.startswith("|")}
    assert "1 of 2" in rows["torch's work alone"]
    assert "33 % (" in rows["with code of their own"]
    assert "torch's work" in rows["aten.relu.default"]
    assert "torch's work" not in rows["aten.add.Tensor"]
    as_json = CliRunner().invoke(report, [str(folder), "--json"], catch_exceptions=False)
    assert json.loads(as_json.output)["runs"][0]["torch_only_operators"] == 1


def test_a_kernel_that_only_calls_the_operator_is_told_as_such(tmp_path: Path) -> None:
    def script(request: ModelRequest) -> str:
        return "```python\nimport torch\n\n\ndef relu_kernel_impl(self):\n    return torch.ops.aten.relu(self)\n```"

    request = GenerationRequest(
        operators=("relu",), dtypes=("float32",), largest=1, dsl="pytorch", device="cpu", max_attempts=1,
        output_dir=tmp_path, run_id="mine",
    )  # fmt: skip
    result = generate(request, Watcher(), provider=ScriptedProvider(script))
    outcome = result.attempts[0].outcome
    assert isinstance(outcome, Judged)
    assert (outcome.right, outcome.authorship) == (True, "torch")
    stored_run = read_generation(result.folder)
    text = summary_text(stored_run.run, "mine", stored_run.attempts)
    assert "with a right kernel: 1, of which 1 without code of their own" in text
    assert (result.folder / "OVERALL_SUMMARY.txt").read_text() == text
