"""The search with a judge that is a function: what is tried, remembered and shrunk."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import pytest

from torchstone.executors import FakeExecutor
from torchstone.runs.failure_search import Bench, SearchRequest, SmallestFailure, search_operator
from torchstone.schema import (
    Agrees,
    Case,
    Crashed,
    Disagrees,
    ErrorStatistics,
    Implementation,
    ImportPath,
    Job,
    Unjudged,
    Unsupported,
    Verdict,
    tensors_of,
)
from torchstone.suites.learned_call_forms import Operator, learn
from torchstone.suites.torch_probe import TorchProbe

AGREES = Agrees(ErrorStatistics(), 1)
WRONG = Disagrees("check", "values", "wrong")
KERNEL = Implementation("test", "aten.add.Tensor", ImportPath("kernels", "add"))
TORCH = Implementation("aten", "aten.add.Tensor", ImportPath("torch", "ops.aten.add.Tensor"))


class Silent:
    def tried(self, operator: str, examples: int, of: int, failing: Case | None) -> None:
        pass


@pytest.fixture(scope="module")
def probe() -> Iterator[TorchProbe]:
    with TorchProbe() as asked:
        yield asked


@pytest.fixture(scope="module")
def add(probe: TorchProbe) -> Operator:
    return learn("aten.add.Tensor", probe)


def searched(
    add: Operator, probe: TorchProbe, decide: Callable[[Job], Verdict], rival: Implementation | None = None
) -> SmallestFailure:
    bench = Bench(FakeExecutor(decide).open(), "quick", KERNEL, rival)
    return search_operator(add, probe, bench, SearchRequest(examples=80), Silent())


def elements(job: Job) -> int:
    return math.prod(tensors_of(job.case)[0].shape)


def test_a_right_kernel_passes(add: Operator, probe: TorchProbe) -> None:
    found = searched(add, probe, lambda job: AGREES)
    assert found.failure is None
    assert 30 <= found.examples <= 80
    assert found.verdicts == {"agrees": found.examples}


def test_a_failure_is_shrunk_to_its_edge(add: Operator, probe: TorchProbe) -> None:
    found = searched(add, probe, lambda job: WRONG if elements(job) > 16 else AGREES)
    assert found.failure is not None
    assert found.failure.record.case.label == "T([17], f32), T([17], f32)"
    assert found.failure.failures == found.failure.tries


@pytest.mark.parametrize(
    ("wrong", "label"),
    [
        (lambda job: elements(job) == 0, "T([0], f32), T([0], f32)"),
        (lambda job: elements(job) % 4 > 0, "T([1], f32), T([1], f32)"),
        (lambda job: tensors_of(job.case)[0].dtype == "bfloat16", "T([1], bf16), T([1], bf16)"),
    ],
)
def test_the_smallest_case_says_what_is_wrong(
    wrong: Callable[[Job], bool], label: str, add: Operator, probe: TorchProbe
) -> None:
    found = searched(add, probe, lambda job: WRONG if wrong(job) else AGREES)
    assert found.failure is not None
    assert found.failure.record.case.label == label


def test_a_layout_that_is_wrong_is_shrunk_to_few_elements(add: Operator, probe: TorchProbe) -> None:
    found = searched(add, probe, lambda job: WRONG if tensors_of(job.case)[0].strides else AGREES)
    assert found.failure is not None
    assert elements(Job(found.failure.record.case, KERNEL)) <= 4
    assert tensors_of(found.failure.record.case)[1].strides is None, "what is not needed is plain"


def test_a_failure_that_depends_on_values_is_found_and_told_as_such(add: Operator, probe: TorchProbe) -> None:
    asked = 0

    def sometimes(job: Job) -> Verdict:
        nonlocal asked
        asked += 1
        return WRONG if elements(job) > 3 and asked % 2 else AGREES

    found = searched(add, probe, sometimes)
    assert found.failure is not None
    assert 4 <= elements(Job(found.failure.record.case, KERNEL)) <= 8
    assert found.failure.failures < found.failure.tries


def test_shrinking_does_not_slip_to_another_verdict(add: Operator, probe: TorchProbe) -> None:
    def decide(job: Job) -> Verdict:
        if elements(job) > 16:
            return WRONG
        return Crashed("check", "exception", "too small") if elements(job) < 4 and failed else AGREES

    failed: list[bool] = []

    def remembering(job: Job) -> Verdict:
        verdict = decide(job)
        failed.extend([True] if verdict is WRONG else [])
        return verdict

    found = searched(add, probe, remembering)
    assert found.failure is not None
    assert found.failure.record.verdict == WRONG


def test_a_case_on_which_torch_fails_too_is_no_failure(add: Operator, probe: TorchProbe) -> None:
    found = searched(add, probe, lambda job: WRONG if elements(job) > 16 else AGREES, TORCH)
    assert found.failure is None
    assert found.doubtful > 0


def test_what_the_machine_could_not_do_is_no_failure_of_the_kernel(add: Operator, probe: TorchProbe) -> None:
    found = searched(add, probe, lambda job: Unjudged("no memory"))
    assert found.failure is None
    assert found.reason == "a case was not judged: no memory"


def test_a_failure_stays_one_whatever_cannot_be_judged_afterwards(add: Operator, probe: TorchProbe) -> None:
    asked = 0

    def once(job: Job) -> Verdict:
        nonlocal asked
        asked += elements(job) > 16
        return AGREES if elements(job) <= 16 else WRONG if asked < 4 else Unjudged("no memory")

    found = searched(add, probe, once)
    assert found.failure is not None or "no memory" in found.reason


def test_what_the_kernel_declines_is_counted_and_no_failure(add: Operator, probe: TorchProbe) -> None:
    found = searched(add, probe, lambda job: Unsupported("candidate", "not today"))
    assert found.failure is None
    assert found.verdicts == {"unsupported": found.examples}
