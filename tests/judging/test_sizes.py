from __future__ import annotations

import itertools
import math
import random
import warnings

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from judging.cases import case, tensor
from torchstone import operators
from torchstone.judging import (
    Agreement,
    Reference,
    compare,
    draw_call,
    hidden_cases,
    stated_size_cases,
    with_other_numbers,
)
from torchstone.judging.variants.pool import VariantPool
from torchstone.judging.variants.scalars import rescalings
from torchstone.judging.variants.sizes import MOST_ELEMENTS, variants
from torchstone.judging.variants.unequal_sizes import with_unequal_sizes
from torchstone.judging.variants.validity import is_valid
from torchstone.schema import Booleans, Case, Integers, Normal, Scalar, Sequence, Tensor, Uniform, tensors_of
from torchstone.suites import CaseQuery
from torchstone.suites.gradient_cases import backward_case
from torchstone.suites.smoke import SmokeSuite

CPU = torch.device("cpu")
SMOKE = SmokeSuite().cases(CaseQuery())
ADD = case("aten.add.Tensor", tensor(24, 32), tensor(32))
LAYER_NORM = case("aten.layer_norm.default", tensor(8, 24), [24], tensor(24), tensor(24), 1e-5)


def many(wanted: Case, seeds: int = 30) -> list[Case]:
    return [variant for seed in range(seeds) for variant in variants(wanted, random.Random(seed))]


@given(index=st.integers(0, len(SMOKE) - 1), seed=st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_torch_takes_every_hidden_case_and_agrees_with_itself(index: int, seed: int) -> None:
    for hidden in VariantPool().draw(SMOKE[index], 2, random.Random(seed)):
        assert hidden.operator == SMOKE[index].operator
        assert hidden.tags[-1] == "hidden"
        assert not hidden.timed
        assert all(torch.Size(recipe.shape).numel() <= MOST_ELEMENTS for recipe in tensors_of(hidden))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = Reference(hidden, CPU).expect(draw_call(hidden, seed, CPU))
            outputs = [output.native for output in expected.outputs]
            assert isinstance(compare(expected, outputs, expected.inputs_after), Agreement)


def test_nearly_every_smoke_case_has_three_hidden_ones() -> None:
    few = [wanted.label for wanted in SMOKE if len(hidden_cases(wanted, 3, random.Random(7))) < 3]
    assert len(few) <= len(SMOKE) // 20, few


def test_the_same_randomness_gives_the_same_variants_and_other_randomness_others() -> None:
    assert VariantPool().draw(ADD, 5, random.Random(1)) == VariantPool().draw(ADD, 5, random.Random(1))
    assert VariantPool().draw(ADD, 5, random.Random(1)) != VariantPool().draw(ADD, 5, random.Random(2))


def test_no_variant_is_the_stated_case_and_none_comes_twice() -> None:
    for seed in range(20):
        hidden = hidden_cases(ADD, 10, random.Random(seed))
        keys = {variant.key for variant in hidden}
        assert len(keys) == len(hidden)
        assert ADD.key not in keys


def test_variants_from_the_pool_are_valid_differ_and_keep_changing() -> None:
    jobs = [hidden_cases(LAYER_NORM, 3, random.Random(seed)) for seed in range(60)]
    keys = [frozenset(variant.key for variant in job) for job in jobs]
    assert all(len(job) == 3 for job in keys)
    assert all(is_valid(variant, seed) for seed, job in enumerate(jobs) for variant in job)
    assert sum(one == other for one, other in itertools.pairwise(keys)) <= 2
    early, late = (set().union(*part) for part in (keys[:20], keys[40:]))
    assert len(late - early) >= 10, "what earlier jobs met tells little about later ones"


def test_most_variants_of_a_case_that_comes_again_are_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Case] = []

    def counted(wanted: Case, seed: int) -> bool:
        tried.append(wanted)
        return is_valid(wanted, seed)

    monkeypatch.setattr("torchstone.judging.variants.pool.is_valid", counted)
    pool = VariantPool()
    for seed in range(100):
        pool.draw(LAYER_NORM, 3, random.Random(seed))
    assert 40 <= len(tried) <= 180


def test_sizes_are_off_by_one_ragged_one_and_zero() -> None:
    columns = {tensors_of(variant)[1].shape[0] for variant in many(ADD)}
    assert {0, 1, 31, 32, 33} <= columns
    assert any(size % 16 and size not in (1, 31, 33) for size in columns)


def test_every_job_gets_a_batch_of_one_and_often_other_sizes_of_one() -> None:
    wanted = case("aten.sum.dim_IntList", tensor(16, 32, 64), [-1])
    jobs = [hidden_cases(wanted, 5, random.Random(seed)) for seed in range(60)]
    shapes = [[tensors_of(variant)[0].shape for variant in job] for job in jobs]
    assert all(any(shape[0] == 1 for shape in job) for job in shapes)
    assert all(sum(any(shape[dimension] == 1 for shape in job) for job in shapes) >= 15 for dimension in (1, 2))


def test_several_sizes_may_be_zero() -> None:
    shapes = [tensors_of(variant)[0].shape for variant in many(case("aten.relu.default", tensor(8, 24, 40)))]
    assert {shape.count(0) for shape in shapes} == {0, 1, 2, 3}


def test_equal_sizes_change_together_with_lists_that_hold_them() -> None:
    followed = 0
    for variant in many(LAYER_NORM):
        values, weight = tensors_of(variant)[:2]
        assert values.shape[1:] == weight.shape
        assert isinstance(variant.args[1], Sequence)
        followed += variant.args[1].items == (Scalar(weight.shape[0]),)
    assert followed >= len(many(LAYER_NORM)) // 2
    for hidden in hidden_cases(LAYER_NORM, 10, random.Random(0)):
        assert hidden.args[1] == Sequence((Scalar(tensors_of(hidden)[1].shape[0]),))


def test_a_dimension_number_that_equals_a_size_stays_a_dimension_number() -> None:
    wanted = case("aten.amax.default", tensor(2, 3, 40), [2])
    assert len(hidden_cases(wanted, 6, random.Random(3))) == 6


def test_ranges_of_indices_follow_what_they_index() -> None:
    wanted = case("aten.index_select.default", tensor(9, 21), 1, tensor(35, dtype="int64", fill=Integers(0, 21)))
    for hidden in hidden_cases(wanted, 10, random.Random(4)):
        source, index = tensors_of(hidden)
        assert isinstance(index.fill, Integers)
        assert index.fill.high <= source.shape[1]


def test_indices_that_would_not_fit_are_refused_even_if_few_are_drawn() -> None:
    index = tensor(1, dtype="int64", fill=Integers(0, 1000))
    assert not is_valid(case("aten.index_select.default", tensor(999), 0, index), 0)
    assert is_valid(case("aten.index_select.default", tensor(1000), 0, index), 0)


def layout_of(recipe: Tensor) -> set[str]:
    strides = recipe.strides or operators.contiguous_strides(recipe.shape)
    long = [stride for size, stride in zip(recipe.shape, strides, strict=True) if size > 1]
    words = {"expanded"} if 0 in long else set()
    words |= {"stepped"} if long and min(long) == 2 else set()
    words |= {"transposed"} if long != sorted(long, reverse=True) else set()
    extent = 1 + sum((size - 1) * stride for size, stride in zip(recipe.shape, strides, strict=True))
    words |= {"apart"} if long and min(long) == 1 and extent > math.prod(recipe.shape) else set()
    return words | ({"shifted"} if recipe.offset else set())


def test_memory_is_transposed_stepped_shifted_expanded_and_apart() -> None:
    seen = {word for variant in many(ADD) for recipe in tensors_of(variant) for word in layout_of(recipe)}
    assert seen == {"transposed", "stepped", "shifted", "expanded", "apart"}


def test_every_job_meets_rows_that_are_further_apart_than_they_are_long() -> None:
    """As ``x[:, :n]`` has them, and every chunk: the memory that kernels are most often given besides plain one."""
    for wanted in (case("aten.mm.default", tensor(12, 9), tensor(9, 20)), case("aten.relu.default", tensor(4, 5, 6))):
        for seed in range(15):
            found = hidden_cases(wanted, 5, random.Random(seed))
            assert any(
                all(recipe.strides is not None and layout_of(recipe) - {"shifted"} == {"apart"} for recipe in recipes)
                for recipes in map(tensors_of, found)
            )


def test_cotangents_of_every_job_lie_apart_too() -> None:
    wanted = backward_case(case("aten.mul.Tensor", tensor(12, 9), tensor(12, 9)))
    for seed in range(15):
        found = [tensors_of(variant)[0] for variant in hidden_cases(wanted, 5, random.Random(seed))]
        assert any(layout_of(cotangent) - {"shifted"} == {"apart"} for cotangent in found)


@pytest.mark.parametrize("operator", ["aten.add_.Tensor", "aten.var.correction"])
def test_nothing_written_and_nothing_reduced_is_expanded(operator: str) -> None:
    wanted = case(operator, tensor(6, 8), tensor(6, 8)) if "add_" in operator else case(operator, tensor(6, 8), [1])
    for variant in many(wanted):
        assert "expanded" not in layout_of(tensors_of(variant)[0])


def test_large_cases_shrink() -> None:
    wanted = case("aten.mm.default", tensor(4096, 1024), tensor(1024, 8192))
    for variant in many(wanted, 5):
        assert all(torch.Size(recipe.shape).numel() <= MOST_ELEMENTS for recipe in tensors_of(variant))


def test_a_case_can_opt_out_and_one_without_tensors_has_none() -> None:
    out = Case("test", ADD.operator, ADD.args, jitter=False)
    assert hidden_cases(out, 3, random.Random(0)) == []
    assert hidden_cases(case("aten.arange.default", 9), 3, random.Random(0)) == []


@pytest.mark.parametrize("seed", range(20))
def test_a_large_timed_case_has_variants_of_its_own_magnitude(seed: int) -> None:
    large = msgspec.structs.replace(case("aten.add.Tensor", tensor(300, 512), tensor(512)), timed=True)
    found = stated_size_cases(large, random.Random(seed))
    assert len(found) == 2
    for option, _ in found:
        assert {abs(new - old) for new, old in zip(option.args[0].shape, (300, 512), strict=True)} == {1}
        assert option.args[0].shape[1] == option.args[1].shape[0]
        assert is_valid(option, 1)


@pytest.mark.parametrize("seed", range(20))
def test_one_of_them_lies_as_stated_and_the_other_does_not(seed: int) -> None:
    large = msgspec.structs.replace(case("aten.relu.default", tensor(300, 512)), timed=True)
    (plain, _), (other, _) = stated_size_cases(large, random.Random(seed))
    assert not layout_of(tensors_of(plain)[0])
    assert layout_of(tensors_of(other)[0]) & {"transposed", "stepped", "expanded", "apart"}


def test_indices_of_a_large_variant_stay_in_range() -> None:
    index = Tensor((70_000,), "int64", Integers(0, 300))
    large = msgspec.structs.replace(case("aten.index_select.default", tensor(300, 512), 0, index), timed=True)
    for seed in range(10):
        (plain, _), (other,) = stated_size_cases(large, random.Random(seed))
        assert [recipe.shape for recipe in tensors_of(plain)] == [(301, 513), (70_001,)]
        assert tensors_of(plain)[1].fill == Integers(0, 300)
        assert [recipe.shape for recipe in tensors_of(other)] == [(300, 512), (70_000,)]


def test_small_cases_have_none_and_large_ones_have_them_whether_they_are_timed_or_not() -> None:
    small = msgspec.structs.replace(ADD, timed=True)
    assert stated_size_cases(small, random.Random(1)) == []
    assert stated_size_cases(case("aten.relu.default", tensor(512, 512)), random.Random(1))
    huge = case("aten.relu.default", tensor(4096, 4096))
    assert stated_size_cases(huge, random.Random(1)) == []
    assert stated_size_cases(msgspec.structs.replace(huge, timed=True), random.Random(1))


def scalars_of(wanted: Case) -> list[object]:
    return [argument.value for argument in wanted.args if isinstance(argument, Scalar)]


def test_about_every_second_variant_has_another_epsilon_and_it_only_grows() -> None:
    for seed in range(20):
        found = [scalars_of(variant)[0] for variant in VariantPool().draw(LAYER_NORM, 4, random.Random(seed))]
        others = {value for value in found if value != 1e-5}
        assert 1 <= len(others) <= 3
        assert others <= {1e-5 * 2**exponent for exponent in range(2, 9)}


def test_whole_numbers_flags_and_sizes_of_results_stay() -> None:
    image = tensor(1, 1, 4, 4)
    for wanted in (
        case("aten.pow.Tensor_Scalar", tensor(8, 8), 2),
        case("aten.cumsum.default", tensor(8, 8), True),
        case("aten.upsample_nearest2d.default", image, [8, 8], 2.0, 2.0),
        case("aten.upsample_nearest2d.vec", image, None, [2.0, 2.0]),
    ):
        assert rescalings(wanted, random.Random(1), boldly=True) == []


def test_numbers_that_torch_refuses_or_that_leave_nothing_finite_stay() -> None:
    quantile = case("aten.quantile.scalar", tensor(9, 33), 0.5)
    power = case("aten.pow.Tensor_Scalar", tensor(9, 33, fill=Uniform(2.0**30, 2.0**31)), 4.0)
    for seed in range(10):
        for variant in VariantPool().draw(quantile, 4, random.Random(seed)):
            assert 0.0 <= scalars_of(variant)[0] <= 1.0  # type: ignore[operator]
        for variant in VariantPool().draw(power, 4, random.Random(seed)):
            assert scalars_of(variant)[0] <= 4.0 or 0 in tensors_of(variant)[0].shape  # type: ignore[operator]


def uneven_of(wanted: Case, jobs: int = 20) -> list[Case]:
    return [
        found
        for seed in range(jobs)
        for found in with_unequal_sizes(wanted, random.Random(seed))
        if is_valid(found, seed)
    ]


def test_square_matrices_become_oblong_in_every_job() -> None:
    square = case("aten.mm.default", tensor(96, 96), tensor(96, 96))
    for seed in range(20):
        shapes = [[t.shape for t in tensors_of(found)] for found in hidden_cases(square, 5, random.Random(seed))]
        assert any(len({*left, *right} - {1}) > 1 for left, right in shapes)
    assert all(left.shape[1] == right.shape[0] for left, right in map(tensors_of, uneven_of(square)))


def test_numbers_go_with_the_sizes_that_they_mean() -> None:
    wanted = case("aten.layer_norm.default", tensor(24, 24), [24], tensor(24), tensor(24), 1e-5)
    found = uneven_of(wanted)
    assert found
    for variant in found:
        values, weight = tensors_of(variant)[:2]
        assert values.shape[0] != values.shape[1]
        assert variant.args[1] == Sequence((Scalar(weight.shape[0]),))


def test_indices_point_into_what_is_smaller() -> None:
    index = tensor(24, dtype="int64", fill=Integers(0, 24))
    found = uneven_of(case("aten.index_select.default", tensor(24, 24), 1, index))
    assert found
    for variant in found:
        values, where = tensors_of(variant)
        assert isinstance(where.fill, Integers)
        assert where.fill.high == min(*values.shape, *where.shape)


@pytest.mark.parametrize(
    "operator", ["aten.add.out", "aten._softmax_backward_data.default", "aten._cdist_forward.default"]
)
def test_what_does_not_check_shapes_is_left_alone(operator: str) -> None:
    numbers = (Scalar(2.0), Scalar(None)) if "cdist" in operator else ()
    wanted = Case("test", operator, (tensor(8, 8), tensor(8, 8), *numbers))
    assert not any(with_unequal_sizes(wanted, random.Random(seed)) for seed in range(10))


def test_sizes_that_must_agree_do_and_nothing_is_broadcast() -> None:
    for variant in uneven_of(case("aten.add.Tensor", tensor(8, 8), tensor(8, 8))):
        one, other = tensors_of(variant)
        assert one.shape == other.shape
    assert not uneven_of(case("aten.linalg_inv_ex.default", tensor(8, 8)))


def test_attention_is_not_tried_on_nothing() -> None:
    """torch 2.13 ends the process with SIGFPE there: the judge with it."""
    query = Tensor((2, 0, 4, 8), "float32", Uniform(-1.0, 1.0))
    attention = Case("test", "aten._scaled_dot_product_flash_attention_for_cpu.default", (query,) * 3)
    assert not is_valid(attention, 1)


def test_a_mode_is_no_size_though_it_equals_one() -> None:
    image, grid = Tensor((2, 3, 4, 4), "float32", Normal()), Tensor((2, 5, 5, 2), "float32", Normal())
    modes = (Scalar(1), Scalar(2), Scalar(False))
    case = Case("test", "aten.grid_sampler_2d.default", (image, grid, *modes))
    drawn = [hidden for seed in range(40) for hidden in hidden_cases(case, 5, random.Random(seed))]
    assert any(hidden.args[0] != image for hidden in drawn)
    assert {hidden.args[2:] for hidden in drawn} == {modes}


def test_a_variant_that_a_full_mask_would_break_is_none() -> None:
    """On a device it would end the judge's own process, in as many calls as draw such a mask."""

    def scattered(rows: int) -> Case:
        mask = Tensor((5,), "bool", Booleans())
        return case("aten.masked_scatter.default", tensor(rows, 5), mask, tensor(5, 5))

    assert is_valid(scattered(5), seed=1)
    assert not any(is_valid(scattered(7), seed) for seed in range(8))


def test_a_case_with_numbers_comes_again_with_others_and_nothing_else() -> None:
    scaled = case("aten.add.Tensor", tensor(6, 11), tensor(11))
    scaled = msgspec.structs.replace(scaled, kwargs={"alpha": Scalar(0.5)})
    (found,) = with_other_numbers(scaled, random.Random(1))
    assert found.args == scaled.args
    assert found.kwargs["alpha"] not in (Scalar(0.5), Scalar(1.0))
    assert found.tags == ("hidden",)
    assert with_other_numbers(case("aten.mm.default", tensor(6, 11), tensor(11, 3)), random.Random(1)) == []
