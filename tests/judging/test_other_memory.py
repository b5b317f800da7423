"""Cases whose sizes must stay, on other memory."""

from __future__ import annotations

import math
import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from judging.cases import case, tensor
from torchstone import operators
from torchstone.judging.variant_tag import is_hidden
from torchstone.judging.variants.memory import with_permuted_memory
from torchstone.judging.variants.pool import hidden_cases, stated_size_cases, with_other_numbers
from torchstone.schema import Case, Given, Normal, Scalar, Sequence, Tensor, tensors_of
from torchstone.suites.fixed_size_layouts import mark_other_layouts

SIZES = Sequence((Scalar(11), Scalar(13)))


def fixed(shape: tuple[int, ...] = (2, 3, 8, 9), layouts: bool = True) -> Case:
    upsampled = (Tensor(shape, "float32", Normal()), SIZES, Scalar(False))
    return Case("test", "aten.upsample_bilinear2d.default", upsampled, jitter=False, layouts=layouts)


@given(st.lists(st.integers(1, 5), min_size=0, max_size=5), st.integers(0, 999))
def test_sizes_and_the_last_dimension_stay_and_no_two_elements_meet(shape: list[int], seed: int) -> None:
    wanted = case("aten.neg.default", tensor(*shape))
    (found,) = tensors_of(with_permuted_memory(wanted, random.Random(seed)))
    assert found.shape == tuple(shape)
    strides = found.strides or operators.contiguous_strides(found.shape)
    assert not shape or strides[-1] == 1
    storage = torch.arange(operators.storage_extent(found))
    assert operators.view_of(storage, found).unique().numel() == math.prod(shape)


def test_what_is_written_to_has_no_gaps_and_given_values_stay() -> None:
    written = case("aten.add_.Tensor", tensor(4, 5), tensor(4, 5))
    for seed in range(20):
        one, other = tensors_of(with_permuted_memory(written, random.Random(seed)))
        assert one.strides is None
        assert other.strides is not None
        assert other.strides[0] > 5
    given_values = case("aten.neg.default", Tensor((2, 1, 2), "float32", Given((1.0, 2.0, 3.0, 4.0))))
    assert with_permuted_memory(given_values, random.Random(1)) == given_values


def test_rows_of_what_has_many_dimensions_are_further_apart_every_second_time() -> None:
    wanted = case("aten.neg.default", tensor(2, 3, 4, 5))
    steps = [
        min(step for step in tensors_of(with_permuted_memory(wanted, random.Random(seed)))[0].strides or () if step > 1)
        for seed in range(40)
    ]
    assert {5, 6, 9} == set(steps)
    assert 8 <= steps.count(5) <= 32


def test_only_who_may_be_laid_out_otherwise_is() -> None:
    assert hidden_cases(fixed(layouts=False), 5, random.Random(1)) == []
    (found,) = hidden_cases(fixed(), 5, random.Random(1))
    assert is_hidden(found)
    assert tensors_of(found)[0].shape == (2, 3, 8, 9)
    assert tensors_of(found)[0].strides is not None
    assert hidden_cases(fixed((8, 8, 64, 64)), 5, random.Random(1)) == [], "too large to be tried"


@pytest.mark.parametrize(
    ("operator", "jitter", "marked"),
    [
        ("aten.upsample_nearest2d.default", False, True),
        ("aten.upsample_nearest2d.default", True, False),
        ("aten.as_strided_copy.default", False, False),
        ("aten.max_pool2d_with_indices_backward.default", False, False),
    ],
)
def test_cases_are_marked_where_memory_is_no_part_of_what_they_mean(operator: str, jitter: bool, marked: bool) -> None:
    assert mark_other_layouts(Case("test", operator, (), jitter=jitter)).layouts is marked


def test_large_cases_come_with_other_numbers_once() -> None:
    rows = tensor(512, 512)
    arguments = rows, Sequence((Scalar(512),)), tensor(512), tensor(512), Scalar(1e-5)
    large = Case("test", "aten.native_layer_norm.default", arguments, timed=True)
    plain, other = stated_size_cases(large, random.Random(3))
    assert {way.args[4] for way in plain} == {Scalar(1e-5)}
    assert other[0].args[4] != Scalar(1e-5), "the first way that torch takes counts"
    assert other[-1].args[4] == Scalar(1e-5)
    assert with_other_numbers(large, random.Random(3)) == []
