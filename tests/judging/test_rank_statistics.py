"""Sorted values and ranks: what they must be, by the definition."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchstone.judging.stochastic.rank_statistics import Ranking, in_order, largest_gap

few = st.lists(st.integers(-5, 5).map(float), min_size=1, max_size=40)


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8]
)
def test_every_row_is_sorted_in_its_own_dtype_and_the_values_stay_where_they_were(dtype: torch.dtype) -> None:
    values = torch.randint(0, 100, (7, 33)).to(dtype)
    before = values.clone()
    found = in_order(values.t())
    assert found.dtype == dtype
    assert torch.equal(found, before.t().sort(dim=-1).values)
    assert torch.equal(values, before)


@given(few, few)
def test_ranks_are_shares_of_values_below_and_up_to(among: list[float], asked: list[float]) -> None:
    less, upto = Ranking(torch.tensor(among, dtype=torch.float64)).below(torch.tensor(asked, dtype=torch.float64))
    assert less.tolist() == pytest.approx([sum(x < value for x in among) / len(among) for value in asked])
    assert upto.tolist() == pytest.approx([sum(x <= value for x in among) / len(among) for value in asked])


@given(few, few)
def test_the_gap_is_the_largest_difference_of_the_two_distributions(one: list[float], other: list[float]) -> None:
    def share(values: list[float], upto: float) -> float:
        return sum(x <= upto for x in values) / len(values)

    expected = max(abs(share(one, x) - share(other, x)) for x in one + other)
    ordered = [torch.tensor(sorted(values), dtype=torch.float64) for values in (one, other)]
    assert largest_gap(*ordered) == pytest.approx(expected)
