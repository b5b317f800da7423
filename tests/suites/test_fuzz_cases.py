"""Generated cases: valid for whatever operator, varied, and the same every time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import pytest

from torchstone.errors import UsageError
from torchstone.schema import Normal, Tensor, tensors_of
from torchstone.suites import CaseQuery, select_cases
from torchstone.suites.fuzz import CASES_PER_OPERATOR, FuzzSuite, overloads_of, stable_cases
from torchstone.suites.learned_call_forms import Operator, Unfuzzable, draw_case, learn
from torchstone.suites.random_choices import SeededChoices
from torchstone.suites.torch_probe import TorchProbe

OPERATORS = {
    "relu.default": {"same"},
    "add.Tensor": {"same", "broadcast"},
    "sum.dim_IntList": {"same"},
    "addmm.default": {"product_with_bias"},
    "native_layer_norm.default": {"rows"},
    "index_select.default": {"picked"},
    "cat.default": {"same", "joined"},
    "where.self": {"same", "broadcast"},
    "_softmax.default": {"same"},
    "clamp.default": {"same"},
    "convolution.default": {"convolution"},
    "expand.default": {"broadcast"},
}
"""And the families of shapes that belong to each."""


@pytest.fixture(scope="module")
def probe() -> Iterator[TorchProbe]:
    with TorchProbe() as asked:
        yield asked


Learned = Callable[[str], Operator]


@pytest.fixture(scope="module")
def learned(probe: TorchProbe) -> Learned:
    """Each operator once for all tests."""
    return cache(lambda name: learn(f"aten.{name}", probe))


@pytest.mark.parametrize("name", OPERATORS)
def test_nearly_every_draw_is_taken_by_torch_and_every_case_is(name: str, learned: Learned, probe: TorchProbe) -> None:
    operator = learned(name)
    assert {form.family.__name__ for form in operator.forms} >= OPERATORS[name]
    choices = SeededChoices(name)
    drawn = [draw_case(operator, choices.one_of(operator.forms), choices) for _ in range(20)]
    assert sum(case is not None and probe.takes(case) for case in drawn) >= 14
    cases = stable_cases(operator, probe)
    assert len(cases) == len({case.key for case in cases}) == CASES_PER_OPERATOR
    assert all(probe.takes(case, seed=1001) for case in cases)
    tags = {tag for case in cases for tag in case.tags}
    assert {"empty", "strided", "offset"} <= tags
    assert len({tensor.dtype for case in cases for tensor in tensors_of(case)}) >= 3


def test_the_suite_is_the_same_every_time(learned: Learned, probe: TorchProbe) -> None:
    made = select_cases("fuzz", FuzzSuite(), CaseQuery(("relu",)))
    assert [case.key for case in made] == [case.key for case in stable_cases(learned("relu.default"), probe)]


def test_special_values_are_for_pointwise_operators_only(learned: Learned, probe: TorchProbe) -> None:
    def has_specials(name: str) -> bool:
        cases = stable_cases(learned(name), probe)
        fills = [tensor.fill for case in cases for tensor in tensors_of(case)]
        return any(isinstance(fill, Normal) and fill.specials for fill in fills)

    assert has_specials("relu.default")
    assert not has_specials("sum.dim_IntList")


def test_cases_that_tell_nothing_say_why(learned: Learned, probe: TorchProbe) -> None:
    cases = stable_cases(learned("addmm.default"), probe)
    assert all(case.indistinct for case in cases if all(0 in tensor.shape for tensor in tensors_of(case)))
    assert any(not case.indistinct for case in cases)


def test_a_requested_dtype_is_the_only_one(probe: TorchProbe) -> None:
    cases = stable_cases(learn("aten.add.Tensor", probe, ("bfloat16",)), probe)
    assert {tensor.dtype for case in cases for tensor in tensors_of(case)} == {"bfloat16"}


@pytest.mark.parametrize(
    "name", ["special_bessel_y0.default", "special_chebyshev_polynomial_t.default", "asin.default"]
)
def test_values_lie_where_the_results_are_numbers(name: str, probe: TorchProbe) -> None:
    operator = learn(f"aten.{name}", probe, ("float32",))
    case = draw_case(operator, operator.forms[0]._replace(specials=False), SeededChoices(0))
    assert case is not None
    assert probe.share_of_nan(case) < 0.05


def test_an_operator_that_kills_the_process_that_asks_is_survived(probe: TorchProbe) -> None:
    """Batch norm reads its statistics without a look at their shapes."""
    norm = learn("aten.native_batch_norm.default", probe, ("float32",))
    weights = [case.args[1] for case in stable_cases(norm, probe) if isinstance(case.args[1], Tensor)]
    assert weights
    assert all(len(weight.shape) == 1 for weight in weights)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nonzero.default", "depend on values"),
        ("zeros.default", "takes no tensor"),
        ("max_pool2d_with_indices_backward.default", "does not check"),
    ],
)
def test_what_cannot_be_fuzzed_says_why(name: str, reason: str, probe: TorchProbe) -> None:
    with pytest.raises(Unfuzzable, match=reason):
        learn(f"aten.{name}", probe)


def test_a_base_name_means_the_overloads_with_tensors() -> None:
    assert set(overloads_of("clamp")) == {"aten.clamp.default", "aten.clamp.Tensor"}
    assert overloads_of("aten.add.Tensor") == ("aten.add.Tensor",)


@pytest.mark.parametrize(("name", "hint"), [("rleu", "relu"), ("add.Foo", "add.Tensor")])
def test_an_unknown_name_is_told_with_what_there_is(name: str, hint: str) -> None:
    with pytest.raises(UsageError, match=hint):
        overloads_of(name)


def test_a_name_like_no_other_is_answered_with_how_many_there_are() -> None:
    with pytest.raises(UsageError, match=r"unknown operator of ATen 'nosuch'\. \d{4} names are known\.$"):
        overloads_of("nosuch")
