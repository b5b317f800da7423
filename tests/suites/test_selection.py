"""From a query to cases, for any suite."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchstone.errors import UsageError
from torchstone.runs.choose_cases_and_kernels import choose_cases
from torchstone.runs.request import RunRequest
from torchstone.schema import Case, Normal, Tensor
from torchstone.suites import (
    CaseQuery,
    ListedSuite,
    input_bytes,
    keep_largest,
    keep_sample,
    left_out,
    operators_of,
    select_cases,
)
from torchstone.suites.smoke import SmokeSuite

cases = st.builds(
    lambda operator, sizes, dtype: Case("x", operator, tuple(Tensor((size,), dtype, Normal()) for size in sizes)),
    st.sampled_from(["aten.relu.default", "aten.add.Tensor", "aten.neg.default"]),
    st.lists(st.integers(0, 5), max_size=3),
    st.sampled_from(["float16", "float32", "bool", "complex128"]),
)


@given(st.lists(cases, max_size=20), st.integers(1, 6))
def test_exactly_the_largest_of_each_operator_are_kept_in_their_order(listed: list[Case], count: int) -> None:
    kept = keep_largest(listed, count)
    remaining = iter(listed)
    assert all(any(case is other for other in remaining) for case in kept), "another order, or not from the list"
    numbers = Counter(case.operator for case in listed)
    assert Counter(case.operator for case in kept) == {name: min(count, number) for name, number in numbers.items()}
    chosen = {id(case) for case in kept}
    for case in listed:
        if id(case) not in chosen:
            assert all(input_bytes(case) <= input_bytes(other) for other in kept if other.operator == case.operator)


@given(st.lists(cases, max_size=20), st.integers(1, 25))
def test_a_sample_gives_every_operator_its_turn_and_grows(listed: list[Case], count: int) -> None:
    kept = keep_sample(listed, count)
    assert len(kept) == min(count, len(listed))
    remaining = iter(listed)
    assert all(any(case is other for other in remaining) for case in kept), "another order, or not from the list"
    numbers, chosen = Counter(case.operator for case in listed), Counter(case.operator for case in kept)
    fewest = min((chosen[name] for name in numbers if chosen[name] < numbers[name]), default=None)
    assert fewest is None or max(chosen.values()) <= fewest + 1
    larger = Counter(case.key for case in keep_sample(listed[::-1], count + 1))
    assert not Counter(case.key for case in kept) - larger


def test_bytes_follow_shape_and_dtype() -> None:
    shapes = {"float16": 2, "bfloat16": 2, "int64": 8, "complex64": 8, "complex128": 16, "bool": 1, "float8_e4m3fn": 1}
    for dtype, width in shapes.items():
        assert input_bytes(Case("x", "aten.neg.default", (Tensor((3, 5), dtype, Normal()),))) == 15 * width


def test_the_largest_are_taken_from_any_suite() -> None:
    found = select_cases("smoke", SmokeSuite(), CaseQuery(("relu", "mm"), largest=2))
    assert Counter(case.operator for case in found) == {"aten.relu.default": 2, "aten.mm.default": 2}
    assert all(case.timed for case in found if case is max(found, key=input_bytes))


@pytest.mark.parametrize(
    ("query", "option"),
    [(CaseQuery(source="calls.txt"), "--source"), (CaseQuery(overhead_dominated=True), "--overhead-dominated")],
)
def test_an_option_that_a_suite_has_no_use_for_is_refused(query: CaseQuery, option: str) -> None:
    with pytest.raises(UsageError, match=f"suite 'smoke' has no use for {option}"):
        select_cases("smoke", SmokeSuite(), query)
    with pytest.raises(UsageError, match="suite 'mine' has no use"):
        select_cases("mine", ListedSuite(()), query)


def test_a_suite_that_leaves_nothing_out_says_nothing() -> None:
    assert left_out(SmokeSuite(), CaseQuery()) == {}


def test_an_expression_may_name_gradients_or_what_they_belong_to() -> None:
    def chosen(expression: str) -> set[str]:
        query = CaseQuery(("relu", "mul"), ("float32",), mode="fwd+bwd", expression=expression)
        return {case.operator for case in select_cases("smoke", SmokeSuite(), query)}

    assert chosen("relu") == {"aten.relu.default", "torchstone_grad.relu.default"}
    assert chosen("torchstone_grad and mul") == {"torchstone_grad.mul.Tensor"}
    assert chosen("not torchstone_grad") == {"aten.relu.default", "aten.mul.Tensor"}


def test_keys_choose_among_the_cases_of_a_query() -> None:
    every = select_cases("smoke", SmokeSuite(), CaseQuery(("relu",)))
    chosen = (every[3], every[1])
    query = CaseQuery(("relu",), keys=tuple(case.key for case in chosen))
    assert select_cases("smoke", SmokeSuite(), query) == (every[1], every[3])


def test_a_suite_that_knows_its_operators_does_not_make_all_cases_to_refuse_a_name() -> None:
    class Slow:
        def cases(self, query: CaseQuery) -> tuple[Case, ...]:
            assert query.operators is not None, "all cases take long"
            return ()

        def operators(self, query: CaseQuery) -> tuple[str, ...]:
            return ("aten.relu.default", "aten.exp.default")

    assert operators_of(Slow(), CaseQuery()) == ("aten.exp.default", "aten.relu.default")
    assert "aten._softmax.default" in operators_of(SmokeSuite(), CaseQuery())
    with pytest.raises(UsageError, match=r"unknown operator 'exq'\. Did you mean 'aten\.exp\.default'"):
        choose_cases(RunRequest(operators=("exq",)), "cpu", Slow())
    with pytest.raises(UsageError, match=r"^operator 'relu' has no case\. Ask"):
        choose_cases(RunRequest(operators=("relu",)), "cpu", Slow())
