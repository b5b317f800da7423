"""Stubs say what is to be written, are judged as what they are, and stand in nobody's way."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest
import torch

from torchstone.backends import BackendOptions
from torchstone.backends.directory import DirectoryBackend
from torchstone.cli import main
from torchstone.installing.stubs import stub, write_stubs
from torchstone.operators import resolve
from torchstone.schema import Case
from torchstone.suites import CaseQuery
from torchstone.suites.smoke import SmokeSuite


def smoke(*operators: str) -> list[Case]:
    return list(SmokeSuite().cases(CaseQuery(operators or None)))


def test_there_is_a_stub_for_every_operator_that_takes_its_calls_and_refuses_them(tmp_path: Path) -> None:
    cases = smoke()
    done = write_stubs(cases, "smoke", tmp_path)
    backend = DirectoryBackend(BackendOptions(tmp_path))
    operators = sorted({case.operator for case in cases})
    assert backend.problems() == ()
    assert len(done.written) == len(operators)
    for operator in operators:
        folder = operator.removeprefix("aten.").replace(".", "__")
        names = runpy.run_path(str(tmp_path / folder / f"{folder}_implementation_v1.py"))
        case = next(case for case in cases if case.operator == operator)
        with pytest.raises(NotImplementedError, match=f"{operator} is still a stub"):
            names[f"{folder}_kernel_impl"](*case.args, **case.kwargs)
        assert str(resolve(operator)._schema).split(" -> ")[0][:60] in names["__doc__"]


def test_a_stub_tells_signature_meaning_memory_and_calls() -> None:
    text = stub("aten.add_.Tensor", smoke("add_"), "smoke")
    for part in (
        "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)",
        "Adds other, scaled by alpha, to input.",
        "Writes to self, and to no other argument. What it returns is self itself.",
        "edge cases: tensors without elements, strides that are not contiguous, a storage offset",
        "(T([7, 15], bf16), T([15], bf16), alpha=0.5)",
        "def add___Tensor_kernel_impl(self, other, *, alpha=1):",
    ):
        assert part in text


def test_views_and_overloads_are_told_as_what_they_are() -> None:
    assert "is a view of self: the same memory" in stub("aten.transpose.int", smoke("transpose"), "smoke")
    assert "index location of each maximum value" in stub("aten.max.dim", smoke("max.dim"), "smoke")


def test_stubs_compile_for_arguments_with_the_names_of_keywords() -> None:
    case = Case("mine", "aten.random_.from", ())
    text = stub("aten.random_.from", [case], "mine")
    compile(text, "stub", "exec")
    assert "from_" in text


def test_what_is_there_is_never_changed_or_hidden(tmp_path: Path) -> None:
    mine = tmp_path / "run_20240101_120000" / "relu" / "relu.py"
    mine.parent.mkdir(parents=True)
    mine.write_text("relu_kernel_impl = abs\n")
    (tmp_path / "mm__default").mkdir()
    (tmp_path / "README.md").write_text("mine\n")
    done = write_stubs(smoke("relu", "mm", "gelu"), "smoke", tmp_path)
    assert done.kept == ("aten.mm.default", "aten.relu.default")
    assert done.written == ("gelu__default/gelu__default_implementation_v1.py",)
    assert mine.read_text() == "relu_kernel_impl = abs\n"
    assert (tmp_path / "README.md").read_text() == "mine\n"
    assert not (tmp_path / "relu__default").exists()


def test_the_command_writes_says_what_and_gives_clear_errors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "kernels"
    assert main(["new-kernels", "--ops", "relu,add", "--dir", str(folder)]) == 0
    assert "2 stubs written, 0 operators left alone" in capsys.readouterr().out
    assert main(["new-kernels", "--ops", "relu", "--dir", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"written": [], "kept": ["aten.relu.default"]}
    assert "torchstone run --suite smoke" in (folder / "README.md").read_text()
    (tmp_path / "file").write_text("")
    assert main(["new-kernels", "--ops", "relu", "--dir", str(tmp_path / "file")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert main(["new-kernels", "--ops", "nothing", "--dir", str(folder)]) == 2


def test_a_stub_in_a_model_is_an_error_that_names_it(tmp_path: Path) -> None:
    import torchstone
    from torchstone.errors import KernelError

    write_stubs(smoke("relu"), "smoke", tmp_path)
    with (
        torchstone.enable(tmp_path, operators=["relu"], device="cpu"),
        pytest.raises(KernelError, match=r"aten.relu.default is still a stub"),
    ):
        torch.relu(torch.ones(1))
