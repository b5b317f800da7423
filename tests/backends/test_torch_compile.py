"""The compile backend: what it offers, and a real worker that compiles it."""

from __future__ import annotations

import pytest

from torchstone import registry
from torchstone.backends import BackendOptions
from torchstone.executors import ExecutorOptions
from torchstone.executors.local import LocalExecutor
from torchstone.schema import (
    Agrees,
    Case,
    Implementation,
    Job,
    Normal,
    Record,
    Scalar,
    SourceFiles,
    Tensor,
    Unsupported,
)

SMALL = Tensor((7, 13), "float32", Normal())
IN_PLACE = Case("test", "aten.add_.Tensor", (SMALL, SMALL), {"alpha": Scalar(2)}, jitter=False)
VIEW = Case("test", "aten.transpose.int", (SMALL, Scalar(0), Scalar(1)), jitter=False)
REFUSED = Case("test", "aten.equal.default", (SMALL, SMALL), jitter=False)


def offered(operator: str, device_type: str = "cpu") -> Implementation:
    backend = registry.backends.factory("compile")(BackendOptions(device_type=device_type))
    found: Implementation = backend.implementation(operator)
    return found


@pytest.mark.parametrize(("device_type", "language"), [("cpu", "cpp"), ("cuda", "triton")])
def test_the_language_is_what_the_compiler_writes_for_the_device(device_type: str, language: str) -> None:
    assert offered("aten.relu.default", device_type).language == language


def test_an_operator_travels_as_the_source_that_compiles_it() -> None:
    origin = offered("aten.add.Tensor").origin
    assert isinstance(origin, SourceFiles)
    assert "torch.ops.aten.add.Tensor\n" in origin.files[0].text
    compile(origin.files[0].text, "compiled.py", "exec")
    assert offered("aten.add.Tensor").key != offered("aten.mul.Tensor").key


@pytest.fixture(scope="module")
def records() -> dict[str, Record]:
    jobs = [Job(case, offered(case.operator), "quick", measured=False) for case in (IN_PLACE, VIEW, REFUSED)]
    return {record.case.operator: record for record in LocalExecutor(ExecutorOptions(device="cpu")).run(jobs)}


@pytest.mark.slow
def test_an_operator_in_place_is_compiled_and_agrees(records: dict[str, Record]) -> None:
    found = records[IN_PLACE.operator]
    assert isinstance(found.verdict, Agrees), found.verdict
    assert found.attribution is not None
    assert found.attribution.note == ""
    assert found.attribution.operators == {}, "the compiled code, not PyTorch's operator, did the work"


@pytest.mark.slow
def test_a_view_stays_a_view(records: dict[str, Record]) -> None:
    assert isinstance(records[VIEW.operator].verdict, Agrees), records[VIEW.operator].verdict


@pytest.mark.slow
def test_what_cannot_be_compiled_is_unsupported_with_the_compilers_reason(records: dict[str, Record]) -> None:
    verdict = records[REFUSED.operator].verdict
    assert isinstance(verdict, Unsupported), verdict
    assert verdict.by == "candidate"
    assert "torch.compile cannot compile this: Data dependent operator" in verdict.reason
