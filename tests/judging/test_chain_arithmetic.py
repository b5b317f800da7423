"""The links of a chain: the worker moves arguments call by call, the judge finds all of them afterwards."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from torchstone.chain import Chain, Moved
from torchstone.chain_arithmetic import Links, selecting_results
from torchstone.judging import Reference, Series
from torchstone.schema import Booleans, Case, Fill, Integers, Normal, Tensor

CPU = torch.device("cpu")
CALLS = 3
RESULT_DTYPES = (
    *("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz"),
    *("float8_e5m2fnuz", "complex32", "complex64", "complex128", "int64", "int32", "int16", "int8"),
    *("uint64", "uint32", "uint16", "uint8", "bool"),
)
ARGUMENT_DTYPES = tuple(dtype for dtype in RESULT_DTYPES if not dtype.startswith("complex"))
shapes = st.lists(st.integers(0, 3), max_size=5).map(tuple)


def random_bits(shape: tuple[int, ...], dtype: str, seed: int) -> torch.Tensor:
    """Any value of the dtype, NaN included."""
    generator = torch.Generator().manual_seed(seed)
    kind: torch.dtype = getattr(torch, dtype)
    if kind is torch.bool:
        return torch.randint(0, 2, shape, generator=generator).to(torch.bool)
    size = (math.prod(shape), kind.itemsize)
    return torch.randint(0, 256, size, generator=generator, dtype=torch.uint8).view(kind).reshape(shape)


def moved(position: int, elements: int, dtype: str) -> Moved:
    kind: torch.dtype = getattr(torch, dtype)
    if kind is torch.bool:
        return Moved(position, elements, dtype, 0, 2)
    return Moved(position, elements, dtype, *((-1.5, 2.0) if kind.is_floating_point else (3, 40)))


def arguments_of(chain: Chain, seed: int) -> list[torch.Tensor]:
    """For each argument ``(CALLS, elements)``, in its range."""
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.rand((CALLS, each.elements), generator=generator)
        .mul(each.high - each.low)
        .add(each.low)
        .to(getattr(torch, each.dtype))
        for each in chain.arguments
    ]


def chain_of(arguments: list[tuple[tuple[int, ...], str]], seed: int) -> Chain:
    kept = [(shape, dtype) for shape, dtype in arguments if math.prod(shape)]
    return Chain(tuple(moved(place, math.prod(shape), dtype) for place, (shape, dtype) in enumerate(kept)), seed)


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@settings(max_examples=300, deadline=None)
@given(
    results=st.lists(st.tuples(shapes, st.sampled_from(RESULT_DTYPES), st.booleans()), min_size=1, max_size=3),
    arguments=st.lists(st.tuples(shapes, st.sampled_from(ARGUMENT_DTYPES)), min_size=1, max_size=2),
    seed=st.integers(0, 1 << 30),
)
def test_the_judge_finds_the_arguments_that_the_worker_made(
    results: list[tuple[tuple[int, ...], str, bool]], arguments: list[tuple[tuple[int, ...], str]], seed: int
) -> None:
    """For results of any rank, size and dtype, and for arguments of any that can be moved."""
    chain = chain_of(arguments, seed)
    drawn = arguments_of(chain, seed)
    given_shapes = [shape for shape, _ in arguments if math.prod(shape)]
    stacked = [random_bits((CALLS, *shape), dtype, seed + place) for place, (shape, dtype, _) in enumerate(results)]
    before = [result.clone() for result in stacked]
    turned = [is_turned for _, _, is_turned in results]
    by_worker = [argument.clone() for argument in drawn]
    links = Links(chain, CPU)
    for call in range(CALLS - 1):
        returned = [_laid_out(result[call], turn) for result, turn in zip(stacked, turned, strict=True)]
        if found := selecting_results(returned):
            rows = [each[call + 1].view(shape) for each, shape in zip(by_worker, given_shapes, strict=True)]
            links.move_next_arguments(found, rows)
    found = selecting_results(stacked)
    by_judge = links.recomputed_arguments(found, drawn) if found else drawn
    assert all(map(torch.equal, map(_as_bytes, by_judge), map(_as_bytes, by_worker)))
    assert all(map(torch.equal, map(_as_bytes, stacked), map(_as_bytes, before))), "results are only read"


def _laid_out(result: torch.Tensor, turned: bool) -> torch.Tensor:
    """The same values, perhaps in memory of another order."""
    return result.mT.contiguous().mT if turned and result.dim() > 1 else result


def _as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


@pytest.mark.parametrize("dtype", ARGUMENT_DTYPES)
def test_moved_arguments_stay_in_their_range(dtype: str) -> None:
    chain = chain_of([((500,), dtype)], 3)
    (argument,) = (each[0] for each in arguments_of(chain, 5))
    before = argument.clone()
    Links(chain, CPU).move_next_arguments([torch.randn(4)], [argument])
    low, high = (chain.arguments[0].low, chain.arguments[0].high)
    values = argument.to(torch.float64)
    assert bool(((values >= low) & (values <= high)).all())
    assert float((values != before.to(torch.float64)).double().mean()) > 0.3


def test_a_conjugate_is_read_by_its_values_not_by_its_memory() -> None:
    """``torch.conj`` and ``imag`` of it are lazy: what lies in memory is not yet the result."""
    chain = chain_of([((32,), "float32")], 3)
    (drawn,) = arguments_of(chain, 5)
    stored = random_bits((CALLS, 4), "complex64", 9)
    for lazy in (stored.conj(), stored.conj().imag):
        by_worker, links = drawn.clone(), Links(chain, CPU)
        for call in range(CALLS - 1):
            links.move_next_arguments([lazy[call]], [by_worker[call + 1]])
        (by_judge,) = links.recomputed_arguments([lazy.resolve_conj().resolve_neg()], [drawn])
        assert torch.equal(by_judge, by_worker)


@pytest.mark.parametrize(
    ("operator", "dtype", "fill"),
    [
        ("aten.argmax.default", "float32", Normal()),
        ("aten.std.default", "float32", Normal()),
        ("aten.any.default", "bool", Booleans()),
        ("aten.sum.default", "int64", Integers(-9, 9)),
        ("aten.clone.default", "uint16", Integers(0, 99)),
        ("aten.clone.default", "float8_e4m3fn", Normal()),
        ("aten.var_mean.default", "float64", Normal()),
    ],
)
def test_a_series_of_chained_calls_is_followed_and_compared(operator: str, dtype: str, fill: Fill) -> None:
    """Also of results without dimensions: the judge's whole way from results to a comparison."""
    series = Series(Reference(Case("test", operator, (Tensor((8, 8), dtype, fill),)), CPU), CALLS)
    chain = series.chain(7)
    assert chain is not None
    series.draw_unevaluated(30)
    namespace, name, overload = operator.split(".")
    kernel = getattr(getattr(getattr(torch.ops, namespace), name), overload)
    links, arguments, rows = Links(chain, CPU), series.storages[0].clone(), []
    for call in range(CALLS):
        found = kernel(arguments[call].view(8, 8))
        rows.append(list(found) if isinstance(found, tuple) else [found])
        if call + 1 < CALLS:
            links.move_next_arguments(selecting_results(rows[-1]), [arguments[call + 1].view(8, 8)])
    outputs = [torch.stack(column) for column in zip(*rows, strict=True)]
    series.follow(chain, outputs)
    assert torch.equal(_as_bytes(series.storages[0]), _as_bytes(arguments))
    assert type(series.compare(outputs, [arguments])).__name__ == "Agreement"
