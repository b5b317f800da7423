from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from judging.cases import case, tensor
from torchstone.judging.variants.pool import VariantPool
from torchstone.judging.variants.unequal_sizes import with_another_scale, with_unequal_sizes
from torchstone.schema import Case, Integers, Sequence, tensors_of

HEADS = [tensor(2, 4, 33, 16)] * 3
Shapes = list[tuple[int, ...]]


def shapes_of(wanted: Case) -> Shapes:
    return [recipe.shape for recipe in tensors_of(wanted)]


@pytest.mark.parametrize(
    ("wanted", "differs"),
    [
        (case("aten._softmax.default", tensor(64, 64), -1, False), lambda s: s[0][0] != s[0][1]),
        (case("aten.scaled_dot_product_attention.default", *HEADS), lambda s: s[0][2] != s[1][2]),
        (case("aten._scaled_dot_product_flash_attention_for_cpu.default", *HEADS), lambda s: s[0][2] != s[1][2]),
        (
            case("aten.conv2d.default", tensor(4, 8, 16, 16), tensor(12, 8, 3, 3), tensor(12)),
            lambda s: s[0][2] != s[0][3],
        ),
        (case("aten._adaptive_avg_pool2d.default", tensor(4, 8, 16, 16), [7, 7]), lambda s: s[0][2] != s[0][3]),
        (
            case("aten._foreach_add.List", *[Sequence((tensor(24, 48), tensor(24, 48)))] * 2),
            lambda s: s[0] != s[1],
        ),
        (case("aten.threshold_backward.default", tensor(8, 8), tensor(8, 8), 0.0), lambda s: s[0][0] != s[0][1]),
    ],
)
def test_what_people_make_square_differs_in_nearly_every_job(wanted: Case, differs: Callable[[Shapes], bool]) -> None:
    jobs = [VariantPool().draw(wanted, 5, random.Random(seed)) for seed in range(16)]
    assert sum(any(differs(shapes_of(variant)) for variant in job) for job in jobs) >= 14


def test_one_variant_parts_every_size_that_can_differ() -> None:
    square = case("aten.mm.default", tensor(96, 96), tensor(96, 96))
    found = [shapes_of(variant) for seed in range(20) for variant in with_unequal_sizes(square, random.Random(seed))]
    assert all(left[1] == right[0] for left, right in found)
    assert sum(len({*left, *right}) == 3 for left, right in found) >= 12


def test_keys_go_with_values() -> None:
    for operator in ("scaled_dot_product_attention", "_scaled_dot_product_flash_attention_for_cpu"):
        for seed in range(30):
            for variant in with_unequal_sizes(case(f"aten.{operator}.default", *HEADS), random.Random(seed)):
                query, key, value = shapes_of(variant)
                assert key[:-1] == value[:-1]
                assert query[:2] == key[:2]


def test_items_of_lists_get_shapes_of_their_own() -> None:
    lists = [Sequence((tensor(24, 48),) * 4)] * 2
    for seed in range(10):
        for variant in with_unequal_sizes(case("aten._foreach_add.List", *lists), random.Random(seed)):
            found = shapes_of(variant)
            assert found[:4] == found[4:]
            assert len(set(found)) > 1


def test_indices_stay_within_what_was_parted_twice() -> None:
    index = tensor(24, dtype="int64", fill=Integers(0, 24))
    for seed in range(30):
        for variant in with_unequal_sizes(
            case("aten.index_select.default", tensor(24, 24), 1, index), random.Random(seed)
        ):
            values, where = tensors_of(variant)
            assert isinstance(where.fill, Integers)
            assert where.fill.high <= values.shape[1]


def test_numbers_of_lists_differ_where_torch_takes_it() -> None:
    pooled = case("aten.avg_pool2d.default", tensor(2, 3, 12, 13), [3, 3], [2, 2], [1, 1])
    found = [variant.args[1:] for seed in range(20) for variant in with_unequal_sizes(pooled, random.Random(seed))]
    lists = [[[item.value for item in each.items] for each in lists if isinstance(each, Sequence)] for lists in found]
    assert all(any(one != other for one, other in numbers) for numbers in lists)
    assert all(kernel[0] != kernel[1] for kernel, _, _ in lists)


def test_a_scale_changes_with_the_size_that_it_makes() -> None:
    wanted = case("aten.upsample_nearest2d.default", tensor(2, 3, 4, 5), [8, 10], 2.0, 2.0)
    for seed in range(8):
        _, sizes, *scales = with_another_scale(wanted, random.Random(seed)).args
        made = [item.value for item in sizes.items]
        assert made in ([9, 10], [8, 11])
        assert [math.floor(size * scale.value) for size, scale in zip((4, 5), scales, strict=True)] == made
    without = case("aten.upsample_nearest2d.default", tensor(2, 3, 4, 5), [8, 10])
    assert with_another_scale(without, random.Random(1)) == without


def test_of_nothing_no_shape_is_tried() -> None:
    assert not with_unequal_sizes(case("aten.cholesky.default", tensor(0, 4, 4)), random.Random(1))
