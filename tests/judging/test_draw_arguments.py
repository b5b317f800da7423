from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from judging.cases import case, tensor
from torchstone import schema
from torchstone.calls.draw_arguments import DrawnTensor
from torchstone.errors import UsageError
from torchstone.judging import draw_call, draw_calls
from torchstone.schema import (
    Booleans,
    Fill,
    Integers,
    Normal,
    PositiveDefinite,
    Simplex,
    SortedIntegers,
    Tensor,
    Uniform,
)

CPU = torch.device("cpu")
FILLS: dict[str, tuple[str, Fill]] = {
    "normal": ("float32", Normal(1.0, 2.0)),
    "specials": ("float16", Normal(specials=True)),
    "uniform": ("bfloat16", Uniform(0.0, 1.0)),
    "integers": ("int32", Integers(0, 50)),
    "booleans": ("bool", Booleans()),
    "simplex": ("float32", Simplex()),
    "sorted integers": ("int64", SortedIntegers(0, 10_000)),
}


def drawn(recipe: Tensor, device: torch.device = CPU, seed: int = 0) -> DrawnTensor:
    return draw_call(case("aten.clone.default", recipe), seed, device).tensors[0]


def test_the_same_seed_draws_the_same_values(device: torch.device) -> None:
    recipe = tensor(50)
    assert torch.equal(drawn(recipe, device, 3).view, drawn(recipe, device, 3).view)
    assert not torch.equal(drawn(recipe, device, 3).view, drawn(recipe, device, 4).view)
    assert drawn(recipe, device).view.device.type == device.type


def test_shaped_fills_need_memory_of_their_own() -> None:
    with pytest.raises(UsageError, match="'simplex' needs memory of its own"):
        drawn(tensor(4, 5, fill=Simplex(), strides=(0, 1)))


def test_seeds_may_be_any_integer() -> None:
    for seed in (-1, 2**64 - 1, 2**70):
        drawn(tensor(3), seed=seed)


@given(seed=st.integers(0, 2**64), count=st.integers(1, 9), size=st.integers(1, 700), name=st.sampled_from(list(FILLS)))
@settings(max_examples=60, deadline=None)
def test_any_call_is_drawn_again_bit_for_bit(seed: int, count: int, size: int, name: str) -> None:
    dtype, fill = FILLS[name]
    wanted = case("aten.clone.default", tensor(size, dtype=dtype, fill=fill))
    first, again = (draw_calls(wanted, seed, count, CPU)[-1].tensors[0].storage for _ in range(2))
    assert torch.equal(first.nan_to_num(7.0), again.nan_to_num(7.0))


@given(seed=st.integers(0, 2**64), count=st.integers(1, 9), size=st.integers(1, 700))
@settings(max_examples=60, deadline=None)
def test_domains_hold_for_every_element(seed: int, count: int, size: int) -> None:
    for dtype in ("float32", "float16", "bfloat16"):
        wanted = case("aten.clone.default", tensor(size, dtype=dtype, fill=Uniform(0.1, 0.3)))
        values = torch.stack([call.args[0] for call in draw_calls(wanted, seed, count, CPU)]).double()
        assert ((values >= 0.1) & (values < 0.3)).all()
    wanted = case("aten.clone.default", tensor(size, dtype="int64", fill=Integers(-3, 11)))
    whole = torch.stack([call.args[0] for call in draw_calls(wanted, seed, count, CPU)])
    assert ((whole >= -3) & (whole < 11)).all()


def test_a_few_calls_show_repeats_ramps_tails_and_small_scales() -> None:
    calls = draw_calls(case("aten.clone.default", tensor(4096)), 5, 32, CPU)
    values = torch.stack([call.args[0] for call in calls])
    steps = values.diff(dim=1)
    assert sum(call.args[0].unique().numel() < 4096 for call in calls) == 32
    level = (steps[:, 1:] - steps[:, :-1]).abs() < 1e-6
    assert (level & (steps[:, 1:] != 0)).sum() > 32
    assert (values.abs() > 5).any(dim=1).float().mean() > 0.5
    assert (values.abs() < 2.0**-8).float().mean() > 1.5 * 0.0031


def test_what_is_repeated_is_not_repeated_from_call_to_call() -> None:
    values = [float(call.args[0]) for call in draw_calls(case("aten.clone.default", tensor(1)), 5, 300, CPU)]
    assert len(set(values)) == 300


def test_no_value_is_repeated_on_purpose_where_ties_have_no_order() -> None:
    for name, runs in (("aten.sort.default", False), ("aten.max.dim", True)):
        values = draw_calls(case(name, tensor(20_000, dtype="float64"), 0), 1, 4, CPU)[2].args[0]
        assert (values.unique().numel() < 20_000) is runs, name


def test_special_values_come_only_where_they_are_asked_for() -> None:
    for dtype in ("float32", "float16", "bfloat16", "float64"):
        plain = drawn(tensor(3000, dtype=dtype)).view
        assert torch.isfinite(plain).all()
        special = drawn(tensor(3000, dtype=dtype, fill=Normal(specials=True))).view
        zeros = special == 0
        assert special.isnan().any()
        assert special.isposinf().any()
        assert special.isneginf().any()
        assert (zeros & special.signbit()).any()
        assert ((special.abs() < torch.finfo(special.dtype).smallest_normal) & ~zeros).any()
        assert 0.5 < float(torch.isfinite(special).float().mean()) < 1.0


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_simplex_rows_are_probabilities(dtype: str) -> None:
    for shape, strides in (((40, 17), None), ((5, 9), (1, 5)), ((1,), None), ((), None)):
        values = drawn(tensor(*shape, dtype=dtype, fill=Simplex(), strides=strides)).view.double()
        assert (values >= 0).all()
        total = values.sum(dim=-1) if shape else values
        assert torch.allclose(total, torch.ones_like(total), atol=17 * torch.finfo(getattr(torch, dtype)).eps)


@pytest.mark.parametrize("dtype", ["float64", "float32", "complex64"])
def test_positive_definite_matrices_have_a_factor(dtype: str) -> None:
    for shape, strides in (((3, 8, 8), None), ((8, 8), (1, 8)), ((1, 1), None)):
        values = drawn(tensor(*shape, dtype=dtype, fill=PositiveDefinite(0.25), strides=strides)).view
        assert torch.equal(values, values.mH)
        assert float(torch.linalg.eigvalsh(values).min()) > 0.24
        torch.linalg.cholesky(values)


@given(size=st.integers(0, 40), extra=st.integers(0, 40), low=st.integers(-50, 50), seed=st.integers(0, 2**63))
@settings(max_examples=60, deadline=None)
def test_sorted_integers_increase_within_their_range(size: int, extra: int, low: int, seed: int) -> None:
    recipe = tensor(3, size, dtype="int64", fill=SortedIntegers(low, low + size + extra + 1))
    values = drawn(recipe, seed=seed).view
    assert (values.diff(dim=-1) > 0).all()
    assert ((values >= low) & (values < low + size + extra + 1)).all()


def test_calls_drawn_together_are_independent_and_can_be_drawn_again(device: torch.device) -> None:
    wanted = case("aten.add.Tensor", tensor(6), tensor(6))
    calls = draw_calls(wanted, 9, 5, device)
    values = {tuple(t.view.tolist()) for call in calls for t in call.tensors}
    assert len(values) == 10
    again = draw_calls(wanted, calls[3].seed, calls[3].count, device)[calls[3].index]
    assert all(torch.equal(a.storage, b.storage) for a, b in zip(again.tensors, calls[3].tensors, strict=True))


@pytest.mark.parametrize("count", [1, 4])
def test_views_have_the_layout_of_the_recipe_and_gaps_are_filled(count: int) -> None:
    recipe = tensor(3, 4, strides=(10, 2), offset=5)
    for call in draw_calls(case("aten.clone.default", recipe), 1, count, CPU):
        (only,) = call.tensors
        assert only.storage.shape == (5 + 1 + 2 * 10 + 3 * 2,)
        assert (only.view.shape, only.view.stride()) == ((3, 4), (10, 2))
        assert only.view.data_ptr() == only.storage[5:].data_ptr()
        assert only.storage.count_nonzero() == only.storage.numel()
        assert call.args[0] is only.view


def test_expanded_and_empty_recipes() -> None:
    expanded = drawn(tensor(3, 5, strides=(0, 1)))
    assert expanded.storage.shape == (5,)
    assert torch.equal(expanded.view[0], expanded.view[2])
    empty = drawn(tensor(0, 5, offset=2))
    assert (empty.storage.shape, empty.view.shape) == ((2,), (0, 5))
    scalar = drawn(tensor())
    assert (scalar.storage.shape, scalar.view.shape) == ((1,), ())


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_normal_values_have_their_mean_and_spread(dtype: str, device: torch.device) -> None:
    values = drawn(tensor(20_000, dtype=dtype, fill=Normal(3.0, 2.0)), device).view
    assert values.dtype == getattr(torch, dtype)
    low, middle, high = values.double().quantile(torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64, device=device))
    assert float(middle) == pytest.approx(3.0, abs=0.1)
    assert float(high - low) / 1.349 == pytest.approx(2.0, abs=0.15)
    assert float((values.double() - 3.0).abs().max()) <= 6.0 * 2.0 * 1.01


def test_complex_values_have_the_variance_of_real_ones() -> None:
    values = drawn(tensor(20_000, dtype="complex64", fill=Normal(1.0, 2.0))).view
    assert float(values.real.mean()) == pytest.approx(1.0, abs=0.1)
    assert float(values.imag.mean()) == pytest.approx(0.0, abs=0.1)
    assert float((values - 1.0).abs().square().mean()) == pytest.approx(4.0, abs=1.0)


def test_large_spreads_do_not_overflow_float16() -> None:
    assert torch.isfinite(drawn(tensor(1000, dtype="float16", fill=Normal(0.0, 1e6))).view).all()


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (0.1, 0.3), (-2.0, -1.0), (-1.0, 0.0), (0.0, 1e-6)])
def test_uniform_values_stay_in_their_range_after_rounding(dtype: str, low: float, high: float) -> None:
    values = drawn(tensor(30_000, dtype=dtype, fill=Uniform(low, high))).view.double()
    assert values.min() >= low
    assert values.max() < high


@pytest.mark.parametrize("dtype", ["int64", "int32", "int16", "int8", "uint8", "float32"])
def test_integers_cover_their_range(dtype: str, device: torch.device) -> None:
    values = drawn(tensor(1000, dtype=dtype, fill=Integers(2, 6)), device).view
    assert values.dtype == getattr(torch, dtype)
    assert set(values.tolist()) == {2, 3, 4, 5}


def test_integers_are_clipped_to_what_the_dtype_holds() -> None:
    assert set(drawn(tensor(500, dtype="uint8", fill=Integers(-5, 2))).view.tolist()) == {0, 1}
    assert drawn(tensor(9000, dtype="int8", fill=Integers(-1000, 1000))).view.unique().numel() == 256
    assert drawn(tensor(100, dtype="int64", fill=Integers(-(2**80), 2**80))).view.unique().numel() > 60


def test_booleans_are_true_as_often_as_asked(device: torch.device) -> None:
    values = drawn(tensor(20_000, dtype="bool", fill=Booleans(0.25)), device).view
    assert float(values.float().mean()) == pytest.approx(0.25, abs=0.02)


@pytest.mark.parametrize(
    ("dtype", "fill", "says"),
    [
        ("int32", Normal(), "'normal' does not fit dtype int32"),
        ("bool", Normal(), "does not fit"),
        ("int64", Uniform(0, 1), "'uniform' does not fit dtype int64"),
        ("float32", Booleans(), "'booleans' does not fit dtype float32"),
        ("complex64", Integers(0, 3), "does not fit"),
        ("bool", Integers(0, 2), "does not fit"),
        ("float32", Uniform(1.0, 1.0), "low < high"),
        ("int32", Integers(3, 3), "integer range"),
        ("uint8", Integers(-9, -3), "integer range"),
        ("bool", Booleans(1.5), "p_true"),
        ("float31", Normal(), "unknown dtype 'float31'"),
        ("int32", Simplex(), "does not fit"),
        ("float32", PositiveDefinite(), "square"),
        ("int64", SortedIntegers(0, 3), "no 4 different integers"),
    ],
)
def test_a_fill_that_does_not_fit_is_wrong_usage(dtype: str, fill: Fill, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        drawn(tensor(4, dtype=dtype, fill=fill))


def test_tensors_to_be_compared_as_a_whole_may_lie_anyhow() -> None:
    transposed = schema.Tensor((5, 3), "float32", schema.Normal(), strides=(1, 7), offset=2)
    case = schema.Case("tests", "aten.allclose.default", (transposed, transposed))
    answers = {bool(torch.allclose(*draw_call(case, seed, torch.device("cpu")).args)) for seed in range(40)}
    assert answers == {True, False}
