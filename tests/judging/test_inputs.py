from __future__ import annotations

import pytest
import torch

from judging.variants import case, tensor
from torchstone.errors import UsageError
from torchstone.judging import draw_call, draw_calls
from torchstone.judging.inputs import DrawnTensor
from torchstone.schema import Booleans, Fill, Integers, Normal, Tensor, Uniform

CPU = torch.device("cpu")


def drawn(recipe: Tensor, device: torch.device = CPU, seed: int = 0) -> DrawnTensor:
    return draw_call(case("aten.clone.default", recipe), seed, device).tensors[0]


def test_the_same_seed_draws_the_same_values(device: torch.device) -> None:
    recipe = tensor(50)
    assert torch.equal(drawn(recipe, device, 3).view, drawn(recipe, device, 3).view)
    assert not torch.equal(drawn(recipe, device, 3).view, drawn(recipe, device, 4).view)
    assert drawn(recipe, device).view.device.type == device.type


def test_seeds_may_be_any_integer() -> None:
    for seed in (-1, 2**64 - 1, 2**70):
        drawn(tensor(3), seed=seed)


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
    assert float(values.double().mean()) == pytest.approx(3.0, abs=0.1)
    assert float(values.double().std()) == pytest.approx(2.0, abs=0.1)


def test_complex_values_have_the_variance_of_real_ones() -> None:
    values = drawn(tensor(20_000, dtype="complex64", fill=Normal(1.0, 2.0))).view
    assert float(values.real.mean()) == pytest.approx(1.0, abs=0.1)
    assert float(values.imag.mean()) == pytest.approx(0.0, abs=0.1)
    assert float((values - 1.0).abs().square().mean()) == pytest.approx(4.0, abs=0.2)


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
    assert drawn(tensor(100, dtype="int64", fill=Integers(-(2**80), 2**80))).view.unique().numel() == 100


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
    ],
)
def test_a_fill_that_does_not_fit_is_wrong_usage(dtype: str, fill: Fill, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        drawn(tensor(4, dtype=dtype, fill=fill))
