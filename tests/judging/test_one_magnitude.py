"""Functions that are there for their digits, and the formulas that have none."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from judging.cases import plans_for
from torchstone.calls.draw_arguments import draw_call, draw_calls
from torchstone.judging import Mismatch, Reference, compare_many, plant, planted_calls
from torchstone.judging.plans.one_magnitude import OneMagnitude, exists_for_precision
from torchstone.schema import Case, Integers, Normal, Tensor, Uniform

CPU = torch.device("cpu")
NAIVE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "aten.log1p.default": lambda x: (1 + x).log(),
    "aten.expm1.default": lambda x: x.exp() - 1,
    "aten.erfc.default": lambda x: 1 - x.erf(),
    "aten.special_log_ndtr.default": lambda x: torch.special.ndtr(x).log(),
}
RIGHT: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "aten.log1p.default": lambda x: (x.double() + 1).log().float(),
    "aten.expm1.default": lambda x: torch.where(x.abs() < 0.1, x * (1 + x / 2 * (1 + x / 3)), x.exp() - 1),
    "aten.erfc.default": lambda x: torch.special.erfcx(x) * (-x * x).exp(),
    "aten.special_log_ndtr.default": lambda x: torch.special.log_ndtr(x.double()).float(),
}


def case(operator: str, fill: Normal | Uniform | Integers | None = None, dtype: str = "float32") -> Case:
    return Case("test", operator, (Tensor((40, 50), dtype, fill or Normal()),))


def worst_over_bound(operator: str, formula: Callable[[torch.Tensor], torch.Tensor], seed: int) -> float:
    """On the narrow call of a case, of which there is always one."""
    wanted = case(operator)
    first = Reference(wanted, CPU, CPU).expect_many(draw_calls(wanted, seed, 1, CPU), with_bounds=True)[0]
    (narrow,) = (each for each in planted_calls(first, seed) if each.call.planted == OneMagnitude.name)
    values = next(iter(narrow.values().values()))
    assert values.bound is not None
    error = (formula(narrow.call.tensors[0].view).double() - values.centre).abs()
    return float((error / values.bound).max())


@pytest.mark.parametrize("operator", NAIVE)
@settings(max_examples=10)
@given(seed=st.integers(0, 1 << 20))
def test_the_formula_that_comes_to_mind_is_refused_and_a_right_one_is_not(operator: str, seed: int) -> None:
    assert worst_over_bound(operator, NAIVE[operator], seed) > 1.0
    assert worst_over_bound(operator, RIGHT[operator], seed) < 0.2


def test_only_such_functions_and_only_within_what_a_recipe_states() -> None:
    assert OneMagnitude.name in plans_for(case("aten.log1p_.default"), once=False)
    assert OneMagnitude.name in plans_for(case("aten.special_log_ndtr.default"), once=False)
    assert OneMagnitude.name not in plans_for(case("aten.log.default"), once=False)
    assert OneMagnitude.name not in plans_for(case("aten.log1p.default", Integers(0, 5), "int64"), once=False)
    assert OneMagnitude.name not in plans_for(case("aten.erfc.default", Uniform(0.0, 1.0)), once=False)
    assert not exists_for_precision("aten.gelu.default")


@given(seed=st.integers(0, 1 << 20))
def test_a_range_that_begins_at_nothing_gives_the_sign(seed: int) -> None:
    wanted = case("aten.log1p.default", Uniform(0.0, 1.0))
    planted = plant(draw_call(wanted, seed, CPU), OneMagnitude.name)
    values = planted.tensors[0].view
    assert float(values.min()) > 0.0
    assert float(values.max()) <= 2.0 * float(values.min())


@pytest.mark.parametrize("name", ["log1p", "expm1"])
def test_digits_of_float64_are_looked_for_where_float64_loses_them(name: str) -> None:
    naive = {"log1p": lambda x: torch.log(1 + x), "expm1": lambda x: torch.exp(x) - 1}[name]
    wanted = Case("test", f"aten.{name}.default", (Tensor((24, 48), "float64", Normal()),), jitter=False)
    usual = Reference(wanted, torch.device("cpu")).expect(draw_call(wanted, 3, torch.device("cpu")))
    usual.values()
    planted = planted_calls(usual, 5)
    after = [[tensor.storage for tensor in each.call.tensors] for each in planted]
    own = [[getattr(torch, name)(each.call.args[0])] for each in planted]
    assert not isinstance(compare_many(planted, own, after), Mismatch)
    assert isinstance(compare_many(planted, [[naive(each.call.args[0])] for each in planted], after), Mismatch)
