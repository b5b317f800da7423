"""Whether bits are the same: quick to tell, and never more generous than the values themselves."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchstone.calls.bitwise_equality import are_identical

DTYPES = (torch.uint8, torch.bool, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64)


@given(st.sampled_from(DTYPES), st.integers(0, 40), st.integers(0, 2**31), st.data())
def test_one_flipped_bit_anywhere_is_seen(dtype: torch.dtype, count: int, seed: int, data: st.DataObject) -> None:
    size = count * dtype.itemsize
    raw = torch.randint(0, 2, (size,), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)
    one, other = raw.view(dtype), raw.clone().view(dtype)
    assert are_identical([(one, other)])
    if size:
        other.view(torch.uint8)[data.draw(st.integers(0, size - 1))] ^= 1
        assert not are_identical([(one, other)])
        assert not are_identical([(one, one.clone()), (one, other)])


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (torch.tensor([float("nan")]), torch.tensor([float("nan")]), True),
        (torch.tensor([0.0]), torch.tensor([-0.0]), False),
        (torch.zeros(2), torch.zeros(3), False),
        (torch.zeros(2), torch.zeros(2, dtype=torch.int32), False),
        (torch.arange(6.0).view(2, 3).T, torch.arange(6.0).view(2, 3).T.contiguous(), True),
    ],
)
def test_values_that_equal_each_other_need_not_be_the_same(one: torch.Tensor, other: torch.Tensor, same: bool) -> None:
    assert are_identical([(one, other)]) is same
