"""Kernels that a folder holds and a run does not judge: each is named with its reason. Real folders, no judge."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from test_run import Notebook, agree, count

import made_records as making
from torchstone.backends import BackendOptions
from torchstone.backends.directory import DirectoryBackend
from torchstone.backends.known_aten_overloads import aten_overloads
from torchstone.executors import FakeExecutor
from torchstone.runs import RunRequest, execute, read_run
from torchstone.runs.unused_kernels import unused_kernels
from torchstone.schema import Case
from torchstone.suites import CaseQuery, ListedSuite
from torchstone.suites.opinfo import OpInfoSuite
from torchstone.suites.smoke import SmokeSuite


@pytest.fixture(autouse=True)
def _no_kept_catalogues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def folder_of(root: Path, *names: str) -> Path:
    for name in names:
        (root / "kernels" / name).mkdir(parents=True)
        (root / "kernels" / name / f"{name.rpartition('/')[2]}.py").write_text("x = 1\n")
    return root / "kernels"


def reasons(kernels: Path, query: CaseQuery | None = None, cases: Iterable[Case] | None = None) -> dict[str, str]:
    """On the smoke suite, or on the given cases alone."""
    query = query or CaseQuery()
    suite = SmokeSuite() if cases is None else ListedSuite(cases)
    backend = DirectoryBackend(BackendOptions(kernels))
    found = unused_kernels(backend, "smoke", suite, query, tuple(suite.cases(query)))
    return {problem.where: problem.reason for problem in found}


def test_a_folder_of_no_operator_names_the_nearest(tmp_path: Path) -> None:
    kernels = folder_of(tmp_path, "rleu", "run_1/add__Tenser", "tanhh", "zzzzzz", "add")
    missing = "torch has no such operator or overload"
    assert reasons(kernels) == {
        "rleu": f"{missing}; did you mean 'relu'?",
        "run_1/add__Tenser": f"{missing}; did you mean 'add__Tensor'?",
        "tanhh": f"{missing}; did you mean 'tanh'?",
        "zzzzzz": missing,
    }


def test_a_folder_of_another_overload_says_how_it_must_be_named(tmp_path: Path) -> None:
    found = reasons(folder_of(tmp_path, "sum", "transpose__Dimname"))
    assert "suite 'smoke' asks for aten.sum.dim_IntList, which a folder of this name does not serve" in found["sum"]
    assert found["sum"].endswith(": 'sum__dim_IntList'")
    assert found["transpose__Dimname"].endswith(": 'transpose__int'")
    (tmp_path / "second").mkdir()
    both = folder_of(tmp_path / "second", "sum", "sum__dim_IntList", "relu")
    assert reasons(both) == {"sum": reasons(folder_of(tmp_path / "third", "tanh"))["tanh"]}


def test_a_folder_whose_overloads_another_one_beside_it_serves_names_that_one(tmp_path: Path) -> None:
    kernels = folder_of(tmp_path, "add", "add__Tensor", "relu", "relu__default", "run_1/add", "run_2/add__Tensor")
    expected = {"add": "add__Tensor serves aten.add.Tensor", "relu": "relu__default serves aten.relu.default"}
    assert reasons(kernels) == expected
    assert reasons(kernels, CaseQuery(("add",))) == {"add": expected["add"]}
    in_runs = folder_of(tmp_path / "older", "run_1/add__Tensor", "run_2/add")
    assert reasons(in_runs) == {}, "an older run is replaced without a word"


def test_an_operator_that_the_suite_lacks_names_a_suite_that_has_it(tmp_path: Path) -> None:
    kernels = folder_of(tmp_path, "tanh", "relu")
    ask = "suite 'smoke' does not ask for this operator"
    assert reasons(kernels) == {"tanh": f"{ask}; another may, see 'torchstone list suites'"}
    making.keep_opinfo(making.case("aten.tanh.default"))
    assert OpInfoSuite().operators(CaseQuery()) == ("aten.tanh.default",)
    assert OpInfoSuite().operators(CaseQuery(dtypes=("float32", "int64"))) is None
    assert reasons(kernels) == {"tanh": f"{ask}; suite 'opinfo' does"}


def test_what_the_user_left_out_is_no_problem(tmp_path: Path) -> None:
    kernels = folder_of(tmp_path, "relu", "gelu", "tanh", "rleu")
    assert sorted(reasons(kernels, CaseQuery(("relu",)))) == ["rleu", "tanh"]
    assert sorted(reasons(kernels, CaseQuery(dtypes=("int64",)))) == ["rleu", "tanh"]
    one_case = [making.case("aten.relu.default")]
    assert sorted(reasons(kernels, CaseQuery(("relu",)), one_case)) == ["rleu"], "the suite does not list its operators"
    assert sorted(reasons(kernels, CaseQuery(), one_case)) == ["gelu", "rleu", "tanh"]


@pytest.mark.parametrize(
    "query",
    [CaseQuery(expression="relu"), CaseQuery(keys=("some case",)), CaseQuery(mode="bwd")],
    ids=["-k", "--last-failed", "--mode bwd"],
)
def test_options_that_choose_among_cases_leave_out_kernels_by_choice(tmp_path: Path, query: CaseQuery) -> None:
    kernels = folder_of(tmp_path, "relu", "gelu", "rleu")
    one_case = [making.case("aten.relu.default")]
    assert list(reasons(kernels, query, one_case)) == ["rleu"], "the suite does not list its operators"
    assert sorted(reasons(kernels, CaseQuery(mode="fwd+bwd"), one_case)) == ["gelu", "rleu"]


UNASKED = ("acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cosh", "erf", "erfc", "sinh", "tan", "tanh")


def test_each_is_warned_of_once_and_kept_with_the_run(tmp_path: Path) -> None:
    kernels = folder_of(tmp_path, "relu", "rleu", *UNASKED)
    notebook = Notebook()
    result = execute(
        RunRequest(backend="directory", kernels_dir=kernels, operators=("relu",), device="cpu", output_dir=tmp_path),
        notebook,
        count,
        executor_factory=lambda options: FakeExecutor(agree),
    )
    typo = "torch has no such operator or overload; did you mean 'relu'?"
    unasked = "suite 'smoke' does not ask for this operator; another may, see 'torchstone list suites'"
    assert notebook.warnings == [f"{', '.join(UNASKED[:12])} and 1 more: {unasked}", f"rleu: {typo}"]
    kept = {problem.where: problem.reason for problem in read_run(result.folder).problems}
    assert kept == {"rleu": typo, **dict.fromkeys(UNASKED, unasked)}


def test_the_list_of_names_is_that_of_the_installed_torch() -> None:
    import torch

    registered = {name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")}
    names = {name.replace(".", "::", 1).removesuffix(".default") for name in aten_overloads()}
    assert {"aten::relu", "aten::add.Tensor", "aten::sum.dim_IntList", "aten::add_.Tensor", "aten::add.out"} <= names
    assert all(name.endswith("out") for name in names - registered), "declared, and made by no build"
    assert {name.partition("_")[0] for name in registered - names} <= {"aten::get", "aten::quantized"}
