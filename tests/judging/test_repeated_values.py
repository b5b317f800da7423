"""Values that come many times, and indices that meet: what torch promises about them is held, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from judging.cases import plans_for
from torchstone.judging import Agreement, Mismatch, Reference, compare_many, draw_call, plant, planted_calls
from torchstone.judging.plans.duplicate_indices import DuplicateIndices
from torchstone.judging.plans.repeated_values import RepeatedInfinities, RepeatedValues
from torchstone.schema import (
    Argument,
    Case,
    Given,
    Integers,
    Normal,
    Scalar,
    Sequence,
    SortedIntegers,
    Tensor,
    Uniform,
    gradient_operator,
)

CPU = torch.device("cpu")
SEEDS = range(6)


def case(operator: str, *args: Argument, **kwargs: Argument) -> Case:
    return Case("tests", f"aten.{operator}", args, kwargs, jitter=False)


def normal(*shape: int, dtype: str = "float32", strides: tuple[int, ...] | None = None) -> Tensor:
    return Tensor(shape, dtype, Normal(), strides)


def judged(wanted: Case, kernel: Callable[..., Any], seed: int) -> Agreement | Mismatch:
    """An ordinary call and all planted ones, as the judge compares them."""
    usual = Reference(wanted, CPU).expect(draw_call(wanted, seed, CPU))
    usual.values()
    calls = [usual, *planted_calls(usual, seed)]
    results = [kernel(*expected.call.args, **expected.call.kwargs) for expected in calls]
    outputs = [list(result) if isinstance(result, tuple) else [result] for result in results]
    return compare_many(calls, outputs, [[t.storage for t in expected.call.tensors] for expected in calls])


X = normal(16, 33)
WHOLE = Tensor((16, 33), "int64", Integers(-100, 100))
LAST = Scalar(-1)
SORT, SORT_FIRST = (
    case("sort.default", X),
    case("sort.default", normal(17, 9, dtype="float64"), Scalar(0), Scalar(True)),
)
STABLE = case("sort.stable", X, stable=Scalar(True), dim=LAST)
UNSTABLE = case("sort.stable", X, stable=Scalar(False), dim=LAST)
TOPK = case("topk.default", X, Scalar(5))
SMALLEST = case("topk.default", X, Scalar(5), LAST, Scalar(False), Scalar(True))
MEDIAN = case("median.dim", X, LAST)
MODE = case("mode.default", X)
CUMMAX = case("cummax.default", X, Scalar(1))
SEARCH = case(
    "searchsorted.Tensor",
    Tensor((4, 32), "int64", SortedIntegers(0, 128)),
    Tensor((4, 20), "int64", Integers(-2, 130)),
)
BUCKETS = case(
    "bucketize.Tensor",
    Tensor((6, 40), "float32", Uniform(-2.0, 130.0)),
    Tensor((32,), "float32", SortedIntegers(0, 128)),
)
UNIQUE = case("unique_consecutive.default", normal(200))
ROWS = Tensor((20,), "int64", SortedIntegers(0, 64))
PUT = case("index_put.default", normal(64, 33), Sequence((ROWS,)), normal(20, 33), Scalar(True))
PUT_TWO = case("index_put.default", normal(64, 64), Sequence((ROWS, ROWS)), normal(20), Scalar(True))
ADD = case("index_add.default", normal(64, 33), Scalar(0), ROWS, normal(20, 33))
REDUCE = case(
    "scatter_reduce.two",
    normal(6, 64),
    Scalar(1),
    Tensor((6, 20), "int64", SortedIntegers(0, 64)),
    normal(6, 20),
    Scalar("amax"),
)


def _ranks(y: torch.Tensor) -> torch.Tensor:
    return (y.unsqueeze(-1) > y.unsqueeze(-2)).sum(-1)


def sort_by_rank(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    rank = _ranks(x)
    places = torch.arange(x.shape[-1]).expand_as(rank).contiguous()
    return torch.zeros_like(x).scatter_(-1, rank, x), torch.zeros_like(rank).scatter_(-1, rank, places)


def one_index_for_equal_values(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Right values, each with the index of the first that equals it."""
    values, indices = torch.sort(x, stable=True)
    first = torch.searchsorted(values, values)
    return values, indices.gather(-1, first)


def topk_by_rank(x: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    values, indices = sort_by_rank(-x)
    return -values[..., :k], indices[..., :k]


def median_by_rank(x: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    hit = _ranks(x) == (x.shape[-1] - 1) // 2
    return (x * hit).sum(-1), hit.long().argmax(-1)


def reversed_sort(x: torch.Tensor, *, stable: bool, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    values, indices = torch.sort(x.flip(dim), stable=True, dim=dim)
    return values, x.shape[dim] - 1 - indices


def argmax_last(x: torch.Tensor, dim: int) -> torch.Tensor:
    return x.shape[dim] - 1 - torch.argmax(x.flip(dim), dim)


def distinct_search(ordered: torch.Tensor, sought: torch.Tensor) -> torch.Tensor:
    equal = (ordered.unsqueeze(-2) == sought.unsqueeze(-1)).any(-1)
    return (ordered.unsqueeze(-2) <= sought.unsqueeze(-1)).sum(-1) - equal.long()


def later_than_itself(x: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Right values, at whatever place in the row they stand last."""
    values = torch.cummax(x, dim).values
    stands = (x.unsqueeze(1) == values.unsqueeze(2)).long()
    return values, x.shape[1] - 1 - stands.flip(-1).argmax(-1)


def drops_one(x: torch.Tensor, indices: list[torch.Tensor], values: torch.Tensor, accumulate: bool) -> torch.Tensor:
    found = x.clone()
    found[tuple(indices)] = x[tuple(indices)] + values
    return found


def adds_one(x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    return x.index_copy(dim, index, x.index_select(dim, index) + source)


WRONG: dict[str, tuple[Case, Callable[..., Any]]] = {
    "a sort that loses values": (SORT, sort_by_rank),
    "a sort of whole numbers that gives one index twice": (case("sort.default", WHOLE), one_index_for_equal_values),
    "a sort that gives one index twice": (SORT, one_index_for_equal_values),
    "a topk that loses values": (TOPK, topk_by_rank),
    "a median of which there is none among equals": (MEDIAN, median_by_rank),
    "a mode that is the least": (MODE, lambda x: tuple(torch.min(x, -1))),
    "a mode that is the first": (MODE, lambda x: (x[:, 0], torch.zeros(len(x), dtype=torch.int64))),
    "a mode that stands elsewhere": (MODE, lambda x: (x.mode().values, x.mode().indices.add(1).remainder(x.shape[1]))),
    "a stable sort that is not": (STABLE, reversed_sort),
    "an argmax that is the last": (case("argmax.default", X, LAST), argmax_last),
    "a maximum with the last index": (case("max.dim", X, LAST), lambda x, d: (x.amax(d), argmax_last(x, d))),
    "a cumulative maximum that is yet to come": (CUMMAX, later_than_itself),
    "a search among what comes once": (SEARCH, distinct_search),
    "buckets whose ends come once": (BUCKETS, lambda x, b: distinct_search(b.expand(6, 32), x)),
    "nothing comes twice": (UNIQUE, lambda x: (x, torch.empty(0).long(), torch.empty(0).long())),
    "an index_put that adds one of those that meet": (PUT, drops_one),
    "an index_put by two indices that does": (PUT_TWO, drops_one),
    "an index_add that adds one of those that meet": (ADD, adds_one),
    "a scatter_reduce that keeps one of those that meet": (
        REDUCE,
        lambda x, d, i, s, r: x.scatter(d, i, torch.maximum(x.gather(d, i), s)),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_for_what_comes_twice_is_found(name: str) -> None:
    wanted, kernel = WRONG[name]
    found = [judged(wanted, kernel, seed) for seed in SEEDS]
    assert all(isinstance(each, Mismatch) for each in found), found


def bubble_sort(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Odd and even places in turn; equal ones are exchanged, too."""
    values, places = x.clone(), torch.arange(x.shape[-1]).repeat(len(x), 1)
    for step in range(x.shape[-1]):
        one, other = slice(step % 2, -1, 2), slice(step % 2 + 1, None, 2)
        length = values[:, other].shape[1]
        a, b = values[:, one][:, :length].clone(), values[:, other].clone()
        i, j = places[:, one][:, :length].clone(), places[:, other].clone()
        swap = a >= b
        values[:, one][:, :length], values[:, other] = torch.where(swap, b, a), torch.where(swap, a, b)
        places[:, one][:, :length], places[:, other] = torch.where(swap, j, i), torch.where(swap, i, j)
    return values, places


def topk_through_sort(x: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    values, indices = torch.sort(x.flip(dim), dim=dim, descending=largest, stable=True)
    return values.narrow(dim, 0, k), x.shape[dim] - 1 - indices.narrow(dim, 0, k)


def median_through_sort(x: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    values, indices = torch.sort(x, dim=dim)
    return values[:, (x.shape[dim] - 1) // 2], indices[:, (x.shape[dim] - 1) // 2]


def stable_by_two_keys(x: torch.Tensor, *, stable: bool, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    before = (x.unsqueeze(-2) < x.unsqueeze(-1)).sum(-1)
    before += ((x.unsqueeze(-2) == x.unsqueeze(-1)).long().tril(-1)).sum(-1)
    places = torch.arange(x.shape[-1]).expand_as(before).contiguous()
    indices = torch.empty_like(before).scatter_(-1, before, places)
    return x.gather(-1, indices), indices


def cumulative_in_a_loop(x: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The first of equal ones; torch takes the last."""
    values, indices = x.clone(), torch.zeros(x.shape, dtype=torch.int64)
    for place in range(1, x.shape[1]):
        larger = x[:, place] > values[:, place - 1]
        values[:, place] = torch.where(larger, x[:, place], values[:, place - 1])
        indices[:, place] = torch.where(larger, place, indices[:, place - 1])
    return values, indices


def mode_by_counting(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The first that comes most often."""
    indices = (x.unsqueeze(-1) == x.unsqueeze(-2)).sum(-1).argmax(-1)
    return x.gather(-1, indices.unsqueeze(-1)).squeeze(-1), indices


def mode_by_sorting(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The largest of those that come most often."""
    values, indices = torch.sort(x, descending=True)
    last = (values.unsqueeze(-1) == values.unsqueeze(-2)).sum(-1).argmax(-1, keepdim=True)
    return values.gather(-1, last).squeeze(-1), indices.gather(-1, last).squeeze(-1)


def pooled_from_the_end(x: torch.Tensor, kernel: Any, stride: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The last of equal ones in a window."""
    values, indices = torch.ops.aten.max_pool2d_with_indices(x.flip(-1, -2), kernel, stride)
    return values.flip(-1, -2), x.shape[-1] * x.shape[-2] - 1 - indices.flip(-1, -2)


def consecutive_by_differences(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    keeps = torch.cat([torch.ones(1, dtype=torch.bool), x[1:] != x[:-1]])
    return x[keeps], torch.empty(0).long(), torch.empty(0).long()


def one_by_one(x: torch.Tensor, indices: list[torch.Tensor], values: torch.Tensor, accumulate: bool) -> torch.Tensor:
    found = x.clone()
    for place in reversed(range(len(values))):
        found[tuple(index[place] for index in indices)] += values[place]
    return found


HONEST: dict[str, tuple[Case, Callable[..., Any]]] = {
    "a sort that exchanges equal ones": (SORT, bubble_sort),
    "a stable sort where none is asked for": (UNSTABLE, stable_by_two_keys),
    "a sort of columns": (SORT_FIRST, lambda x, d, r: tuple(torch.sort(x, dim=d, descending=r, stable=True))),
    "an argsort from the end": (case("argsort.default", X), lambda x: reversed_sort(x, stable=False, dim=-1)[1]),
    "a stable sort by two keys": (STABLE, stable_by_two_keys),
    "a stable argsort": (
        case("argsort.stable", X, stable=Scalar(True)),
        lambda x, *, stable: stable_by_two_keys(x, stable=True, dim=-1)[1],
    ),
    "a topk through sort": (TOPK, topk_through_sort),
    "the smallest through sort": (SMALLEST, topk_through_sort),
    "a kthvalue through sort": (
        case("kthvalue.default", X, Scalar(7)),
        lambda x, k: tuple(part[:, k - 1] for part in reversed_sort(x, stable=False, dim=-1)),
    ),
    "an argmax through max": (case("argmax.default", X, LAST), lambda x, d: x.max(d)[1]),
    "an argmin by comparing": (case("argmin.default", X, LAST), lambda x, d: (x == x.amin(d, True)).long().argmax(d)),
    "a maximum through argmax": (case("max.dim", X, LAST), lambda x, d: (x.amax(d), x.argmax(d))),
    "a median through sort": (MEDIAN, median_through_sort),
    "a median of all through sort": (
        case("median.default", X),
        lambda x: x.flatten().sort().values[(x.numel() - 1) // 2],
    ),
    "a cumulative maximum in a loop": (CUMMAX, cumulative_in_a_loop),
    "a mode by counting": (MODE, mode_by_counting),
    "a mode by sorting": (MODE, mode_by_sorting),
    "a mode of whole numbers": (case("mode.default", WHOLE), mode_by_counting),
    "a pooling that takes the last": (
        case("max_pool2d_with_indices.default", normal(2, 3, 8, 8), *[Sequence((Scalar(2), Scalar(2)))] * 2),
        pooled_from_the_end,
    ),
    "a search by counting": (SEARCH, lambda s, v: (s.unsqueeze(-2) < v.unsqueeze(-1)).sum(-1)),
    "buckets by counting": (BUCKETS, lambda x, b: (b < x.unsqueeze(-1)).sum(-1)),
    "differences that are not 0": (UNIQUE, consecutive_by_differences),
    "an index_put one by one": (PUT, one_by_one),
    "an index_put by two indices": (PUT_TWO, one_by_one),
    "an index_add by a product": (
        ADD,
        lambda x, d, i, s: x + torch.nn.functional.one_hot(i, len(x)).T.to(x.dtype) @ s,
    ),
}


@pytest.mark.parametrize("name", HONEST)
def test_what_torch_leaves_open_is_nobodys_fault(name: str) -> None:
    wanted, kernel = HONEST[name]
    for seed in SEEDS:
        found = judged(wanted, kernel, seed)
        assert isinstance(found, Agreement), found


@pytest.mark.parametrize(
    "tensor",
    [
        X,
        WHOLE,
        normal(1000),
        normal(8, 9, strides=(1, 8)),
        normal(40, 9, strides=(9, 0)),
        normal(5, 6, dtype="bfloat16"),
        Tensor((7, 5), "float16", Normal(specials=True)),
        Tensor((300,), "uint8", Integers(0, 200)),
    ],
)
def test_a_few_values_of_its_own_come_many_times(tensor: Tensor) -> None:
    wanted = case("sort.default", tensor)
    drawn, planted = draw_call(wanted, 3, CPU), plant(draw_call(wanted, 3, CPU), RepeatedValues.name)
    again = plant(draw_call(wanted, 3, CPU), RepeatedValues.name)
    before, after = drawn.tensors[0].view.double().flatten(), planted.tensors[0].view.double().flatten()
    assert torch.equal(after, again.tensors[0].view.double().flatten())
    assert len(after.unique()) <= 16 < len(before.unique())
    assert bool(torch.isin(after, before).all())


def test_infinities_come_many_times_and_fill_rows() -> None:
    wanted = case("topk.default", normal(24, 30), Scalar(4))
    infinite = [plant(draw_call(wanted, seed, CPU), RepeatedInfinities.name).tensors[0].view for seed in range(10)]
    assert all(bool(torch.isinf(view).any()) for view in infinite)
    assert any(bool((row == sign * math.inf).all()) for view in infinite for row in view for sign in (1, -1))
    assert any(0 < int((row == -math.inf).sum()) < len(row) for view in infinite for row in view)


def test_who_overwrites_what_it_has_found_is_found_out() -> None:
    """A row with fewer numbers than are asked for gives an old one twice."""

    def kernel(x: torch.Tensor, count: int) -> list[torch.Tensor]:
        left, values, places = x.clone(), [], []
        for _ in range(count):
            place = left.argmax(-1, keepdim=True)
            places.append(place)
            values.append(x.gather(-1, place))
            left.scatter_(-1, place, -math.inf)
        return [torch.cat(values, -1), torch.cat(places, -1)]

    wanted = case("topk.default", normal(24, 6), Scalar(4))
    refused = 0
    for seed in range(12):
        found = planted_calls(Reference(wanted, CPU).expect(draw_call(wanted, seed, CPU)), seed)
        (expected,) = [each for each in found if each.call.planted == RepeatedInfinities.name]
        answer = compare_many([expected], [kernel(*expected.call.args)], [expected.inputs_after])
        refused += isinstance(answer, Mismatch)
    assert refused >= 8


def test_boundaries_stay_sorted_and_are_found() -> None:
    for seed in SEEDS:
        call = plant(draw_call(SEARCH, seed, CPU), RepeatedValues.name)
        ordered, sought = (tensor.view for tensor in call.tensors)
        assert bool((ordered.diff() >= 0).all())
        assert bool((ordered.diff() == 0).any())
        assert bool((sought.unsqueeze(-1) == ordered.unsqueeze(-2)).any())
        assert int(sought.min()) >= -2
        assert int(sought.max()) < 130


def test_indices_that_meet_are_those_of_the_case() -> None:
    drawn, planted = draw_call(PUT_TWO, 1, CPU), plant(draw_call(PUT_TWO, 1, CPU), DuplicateIndices.name)
    pairs = [torch.stack([tensor.view for tensor in call.tensors[1:3]]).T.tolist() for call in (drawn, planted)]
    before, after = ({tuple(pair) for pair in each} for each in pairs)
    assert after < before


ONCE_ONLY = {
    "an index_put that overwrites": case("index_put.default", normal(64, 33), Sequence((ROWS,)), normal(20, 33)),
    "a scatter": case("scatter.src", normal(64), Scalar(0), ROWS, normal(20)),
    "what is sorted by another": case(
        "searchsorted.Tensor",
        Tensor((3,), "float32", Given((3.0, 1.0, 2.0))),
        normal(5),
        sorter=Tensor((3,), "int64", Given((1, 2, 0))),
    ),
    "boundaries as they come": case("bucketize.Tensor", normal(6), normal(4)),
    "what is written to": case("sort.values", X, values=X, indices=Tensor((16, 33), "int64", Integers(0, 33))),
    "a gradient": Case("tests", gradient_operator("aten.sort.default"), (Sequence((X,)), X)),
    "a factorisation": case("linalg_lu_factor_ex.default", normal(8, 8)),
}


@pytest.mark.parametrize("name", ONCE_ONLY)
def test_nothing_comes_twice_where_that_is_not_defined(name: str) -> None:
    assert not {RepeatedValues.name, DuplicateIndices.name} & {
        *plans_for(ONCE_ONLY[name], once=True),
        *plans_for(ONCE_ONLY[name], once=False),
    }
