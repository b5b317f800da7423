"""Training and evaluation share no case, and both have what an operator can give them."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from torchstone.gym.splits import EVALUATION_SHARE, in_split
from torchstone.schema import Case, Normal, Tensor


def case(size: int, timed: bool) -> Case:
    return Case("made", "aten.relu.default", (Tensor((size,), "float32", Normal()),), timed=timed)


@given(st.lists(st.tuples(st.integers(1, 500), st.booleans()), unique=True, max_size=20))
def test_every_case_is_in_exactly_one_split_and_each_split_has_some_of_two_or_more(
    sizes: list[tuple[int, bool]],
) -> None:
    cases = [case(size, timed) for size, timed in sizes]
    train, evaluation = in_split(cases, "train"), in_split(cases, "eval")
    assert in_split(cases, "all") == tuple(cases)
    assert not {each.key for each in train} & {each.key for each in evaluation}
    assert sorted(each.key for each in (*train, *evaluation)) == sorted(each.key for each in cases)
    for timed in (True, False):
        if sum(each.timed is timed for each in cases) >= 2:
            assert any(each.timed is timed for each in train)
            assert any(each.timed is timed for each in evaluation)


@given(st.permutations(list(range(1, 12))))
def test_the_order_of_cases_does_not_matter(sizes: list[int]) -> None:
    train = {each.key for each in in_split([case(size, False) for size in sizes], "train")}
    assert train == {each.key for each in in_split([case(size, False) for size in sorted(sizes)], "train")}


def test_a_case_stays_where_it_is_when_many_others_come() -> None:
    sizes = random.Random(1).sample(range(1, 10_000), 400)
    few, many = ([case(size, False) for size in sizes[:count]] for count in (200, 400))
    before = {each.key for each in in_split(few, "eval")}
    after = {each.key for each in in_split(many, "eval")}
    assert before == after & {each.key for each in few}
    assert abs(len(after) / 400 - EVALUATION_SHARE) < 0.1


def test_a_problem_is_in_one_split_by_its_name_whatever_weights_its_model_draws() -> None:
    def problem(number: int, mean: float) -> Case:
        weights = Tensor((3,), "float32", Normal(mean, 1.0))
        return Case("kernelbench", f"kernelbench.level1__{number}_ReLU.default", (weights,), timed=True)

    by_weights = [
        [bool(in_split([problem(number, mean)], "eval")) for number in range(300)] for mean in (0.0, 0.01, -0.02)
    ]
    assert by_weights[0] == by_weights[1] == by_weights[2]
    assert abs(sum(by_weights[0]) / 300 - EVALUATION_SHARE) < 0.1
    both = [problem(1, 0.0), problem(1, 0.01)]
    assert {len(in_split(both, "eval")), len(in_split(both, "train"))} == {0, 2}


def test_the_single_cases_of_many_problems_are_divided_among_the_splits() -> None:
    evaluated = sum(bool(in_split([case(size, True)], "eval")) for size in range(1, 301))
    assert abs(evaluated / 300 - EVALUATION_SHARE) < 0.1
