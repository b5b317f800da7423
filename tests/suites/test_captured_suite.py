"""Captured programs: what is recorded of a running model, what the file holds, and what is said about the rest."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import nn

import torchstone
from torchstone import operators
from torchstone.calls.draw_arguments import draw_call
from torchstone.errors import UsageError
from torchstone.operators import overloads
from torchstone.schema import Case, Integers, Normal, Scalar, Tensor, tensors_of
from torchstone.suites import CaseQuery, left_out, select_cases
from torchstone.suites.captured import Captured, CapturedSuite, Head, read_captured, write_captured
from torchstone.suites.case_cache import Exclusion
from torchstone.suites.device_only_operators import CPU_ONLY, CUDA_ONLY, reason_against
from torchstone.suites.program_capture import INTERRUPTED, MOST_VARIANTS, TOO_LARGE, UNDECLARED_WRITE, capturing, fitted
from torchstone.suites.recorder import Recorder

CPU = torch.device("cpu")


def captured(path: Path, run: Callable[[], object], **options: tuple[str, ...]) -> Captured:
    with capturing(path, **options):
        run()
    return read_captured(path)


def step(model: nn.Module) -> None:
    tokens = torch.randint(50, (4, 6))
    nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two steps of a small language model."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(50, 8), nn.LayerNorm(8), nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 50))
    path = tmp_path_factory.mktemp("captured") / "calls.jsonl"
    with torchstone.capture(path):
        step(model)
        step(model)
    return path


def test_a_training_step_is_there_forward_and_backward_with_counts(training: Path) -> None:
    found = {case.operator: case for case in read_captured(training).cases}
    forward = {"aten.embedding.default", "aten.native_layer_norm.default", "aten.addmm.default", "aten.gelu.default"}
    backward = {"aten.embedding_dense_backward.default", "aten.gelu_backward.default", "aten.nll_loss_backward.default"}
    assert forward | backward <= found.keys()
    assert found["aten.embedding.default"].occurrences == 2
    assert all(case.suite == "captured" for case in found.values())


def test_indices_stay_within_what_they_index(training: Path) -> None:
    found = {case.operator: case for case in read_captured(training).cases}
    for operator in (
        "aten.embedding.default",
        "aten.embedding_dense_backward.default",
        "aten.nll_loss_forward.default",
    ):
        fills = [tensor.fill for tensor in tensors_of(found[operator]) if tensor.dtype == "int64"]
        assert fills == [Integers(0, 50)], operator


def test_every_captured_call_can_be_made_again(training: Path) -> None:
    cases = read_captured(training).cases
    assert len(cases) > 20
    for case in cases:
        call = draw_call(case, 7, CPU)
        operators.resolve(case.operator)(*call.args, **call.kwargs)


def test_only_the_operators_asked_for_are_recorded(tmp_path: Path) -> None:
    found = captured(tmp_path / "c.jsonl", lambda: torch.ones(3).relu() + 1, names=("relu",))
    assert {case.operator for case in found.cases} == {"aten.relu.default"}
    assert found.head.calls == 1


def test_a_block_that_fails_still_leaves_its_file(tmp_path: Path) -> None:
    def fail() -> None:
        torch.ones(3).relu()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), torchstone.capture(str(tmp_path / "c.jsonl"), operators="relu") as capture:
        fail()
    assert [case.operator for case in capture.cases] == ["aten.relu.default"]
    assert read_captured(tmp_path / "c.jsonl").cases == capture.cases
    assert "1 call, 1 unique, 1 case of 1 operator, 0 calls excluded" in capture.closing_line


def test_what_cannot_be_judged_stays_in_the_file_with_its_reason(tmp_path: Path) -> None:
    def run() -> None:
        torch.ones(3).to_sparse().to_dense()
        torch.ones(3).relu()

    path = tmp_path / "c.jsonl"
    found = captured(path, run)
    assert any("sparse" in exclusion.reason for exclusion in found.exclusions)
    query = CaseQuery(source=str(path))
    assert sum(left_out(CapturedSuite(), query).values()) == sum(item.count for item in found.exclusions)


def test_every_excluded_call_counts_once_whether_it_was_recorded_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchstone.suites.program_capture._free_bytes", lambda device: 0.0)
    with torchstone.capture(str(tmp_path / "c.jsonl"), operators=["relu"]) as capture:
        for _ in range(3):
            torch.ones(3).relu()
            torch.ones(3, device="meta").relu()
    assert sorted(item.count for item in capture.exclusions) == [3, 3]
    assert capture.closing_line.endswith("6 calls, 1 unique, 0 cases of 0 operators, 6 calls excluded")


def test_statistics_that_a_batch_norm_updates_are_part_of_what_is_judged(tmp_path: Path) -> None:
    """Its schema does not say that it writes to them."""
    training = captured(
        tmp_path / "c.jsonl", lambda: nn.BatchNorm1d(3)(torch.randn(6, 3)), names=("native_batch_norm",)
    )
    assert training.exclusions == ()
    (case,) = training.cases
    assert operators.contract_of(case).mutated == {3, 4}


def test_operators_that_write_what_they_do_not_say_are_excluded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overloads, "_undeclared_writes", lambda case, names: ())
    found = captured(tmp_path / "c.jsonl", lambda: nn.BatchNorm1d(3)(torch.randn(6, 3)), names=("native_batch_norm",))
    assert [item.reason for item in found.exclusions] == [UNDECLARED_WRITE]


def test_what_was_made_without_values_is_no_case(tmp_path: Path) -> None:
    found = captured(tmp_path / "c.jsonl", lambda: torch.ones(3, device="meta").relu())
    assert found.cases == ()
    assert {item.reason for item in found.exclusions} == {"made on the meta device, where nothing is computed"}


def test_a_call_that_leaves_no_memory_is_not_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchstone.suites.program_capture._free_bytes", lambda device: 100.0)
    found = captured(tmp_path / "c.jsonl", lambda: (torch.ones(9).relu(), torch.ones(2).relu()), names=("relu",))
    assert [item.reason for item in found.exclusions] == [TOO_LARGE]
    assert len(found.cases) == 1


def test_the_programs_random_numbers_are_as_without_capture(tmp_path: Path) -> None:
    torch.manual_seed(3)
    nn.functional.dropout(torch.ones(9))
    expected = torch.rand(4)
    torch.manual_seed(3)
    captured(tmp_path / "c.jsonl", lambda: nn.functional.dropout(torch.ones(9)))
    assert torch.equal(torch.rand(4), expected)


def test_large_calls_are_timed_and_views_are_not(tmp_path: Path) -> None:
    found = captured(tmp_path / "c.jsonl", lambda: torch.ones(600, 600).t().relu())
    timed = {case.operator: case.timed for case in found.cases}
    assert timed["aten.relu.default"]
    assert not timed["aten.t.default"]


def test_an_interrupt_while_values_are_tried_keeps_what_was_done(monkeypatch: pytest.MonkeyPatch) -> None:
    with Recorder() as recorder:
        torch.ones(3).relu().exp()
    from torchstone.suites import program_capture as module

    real = module.fit

    def interrupted(call: object, *args: object, **options: object) -> Case:
        if "exp" in str(call):
            raise KeyboardInterrupt
        return real(call, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "fit", interrupted)
    found = fitted(recorder)
    assert [case.operator for case in found.cases][-1] == "aten.relu.default"
    assert Exclusion("aten.exp.default", INTERRUPTED) in found.exclusions


# The recorder.


def test_floats_are_looked_at_in_the_first_calls_and_whole_numbers_in_all() -> None:
    with Recorder(float_reads=2) as recorder:
        for number in (1, 2, 3):
            torch.full((4,), float(number)).index_select(0, torch.tensor([number]))
    (call,) = [call for call in recorder.calls.values() if call.operator == "aten.index_select.default"]
    values, index = call.properties
    assert (values.greatest, index.greatest) == (2.0, 3.0)
    assert call.count == 3


def test_calls_that_differ_in_a_float_alone_are_told_apart_up_to_a_limit() -> None:
    with Recorder(most_variants=MOST_VARIANTS) as recorder:
        for number in range(20):
            torch.ones(2) * (number + 0.5)
            torch.ones(2) * number
    calls = [call for call in recorder.calls.values() if call.operator == "aten.mul.Tensor"]
    floats = [call for call in calls if isinstance(call.args[1], Scalar) and isinstance(call.args[1].value, float)]
    assert [call.count for call in floats] == [1 + 20 - MOST_VARIANTS] + [1] * (MOST_VARIANTS - 1)
    assert len(calls) - len(floats) == 20


def test_several_threads_may_use_one_recorder() -> None:
    recorder = Recorder()

    def work() -> None:
        with recorder:
            for _ in range(50):
                torch.relu(torch.ones(2))

    with recorder:  # a mode belongs to its thread: each enters it for itself, as autograd does for its own
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    (call,) = [call for call in recorder.calls.values() if call.operator == "aten.relu.default"]
    assert call.count == 200


class Nested(torch.autograd.Function):
    """A backward pass inside a backward pass: beyond a depth of 60 autograd goes on in a thread of its own."""

    threads: ClassVar[set[int]] = set()

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, depth: int) -> torch.Tensor:
        ctx.depth = depth
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:  # type: ignore[override]
        Nested.threads.add(threading.get_ident())
        if ctx.depth:
            with torch.enable_grad():
                Nested.apply(torch.ones(1, requires_grad=True), ctx.depth - 1).backward()  # type: ignore[no-untyped-call]
        return gradient.erf(), None


def test_calls_in_the_threads_of_autograd_are_recorded() -> None:
    with Recorder() as recorder:
        Nested.apply(torch.ones(1, requires_grad=True), 70).backward()  # type: ignore[no-untyped-call]
    assert len(Nested.threads) > 1, "autograd has used no other thread"
    (call,) = [call for call in recorder.calls.values() if call.operator == "aten.erf.default"]
    assert call.count == 71


# The suite.


def write(path: Path, *cases: Case, exclusions: tuple[Exclusion, ...] = ()) -> str:
    write_captured(path, Captured(Head(1, "2.13", len(cases)), cases, exclusions))
    return str(path)


def case(operator: str, dtype: str = "float32") -> Case:
    return Case("captured", operator, (Tensor((2,), dtype, Normal()),), occurrences=3)


def test_cases_are_chosen_by_operator_and_dtype(tmp_path: Path) -> None:
    half = case("aten.relu.default", "float16")
    source = write(tmp_path / "c.jsonl", case("aten.relu.default"), half, case("aten.exp.default"))
    chosen = select_cases("captured", CapturedSuite(), CaseQuery(("relu",), ("float16",), source=source))
    assert chosen == (half,)


def test_operators_of_the_other_device_are_left_out(tmp_path: Path) -> None:
    attention = case("aten._scaled_dot_product_flash_attention_for_cpu.default")
    query = CaseQuery(source=write(tmp_path / "c.jsonl", attention), device_type="cuda")
    assert CapturedSuite().cases(query) == ()
    assert CapturedSuite().left_out(query) == {CPU_ONLY: 3}, "as often as it was called"
    assert reason_against("aten._scaled_dot_product_efficient_attention_backward.default", "cpu") == CUDA_ONLY
    assert reason_against("aten.relu.default", "cpu") == ""


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "line 1: expected the head of a file"),
        ('{"op_name": "aten.relu.default"}', "line 1: Object contains unknown field `op_name`"),
        ('{"captured": {"format": 2, "torch": "3", "calls": 1}}', "has format 2, this version reads 1"),
        ('{"captured": {"format": 1, "torch": "3", "calls": 1}}\n{"case": 1}', "line 2: Expected `object | null`"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text(content)
    with pytest.raises(UsageError) as caught:
        read_captured(path)
    assert says in str(caught.value)


def test_without_a_file_there_is_no_suite() -> None:
    with pytest.raises(UsageError, match="needs --source FILE"):
        CapturedSuite().cases(CaseQuery())
    with pytest.raises(UsageError, match="cannot be read"):
        CapturedSuite().cases(CaseQuery(source="nowhere.jsonl"))
    with pytest.raises(UsageError, match="is no folder"), torchstone.capture("nowhere/calls.jsonl"):
        pass
