"""The smoke suite: what it holds, that torch can run it, and how a request changes it."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict

import pytest
import torch

from torchstone import operators
from torchstone.errors import UsageError
from torchstone.schema import (
    Booleans,
    Case,
    Integers,
    Normal,
    Scalar,
    Tensor,
    Uniform,
    decode,
    encode,
    tensors_of,
)
from torchstone.suites import CaseQuery
from torchstone.suites.smoke import EXACT, FLOATS, SmokeSuite

CPU = torch.device("cpu")
KINDS = {
    "elementwise", "binary", "broadcast", "reduction", "matmul", "softmax", "layer-norm", "inplace",
    "multiple-outputs", "integer", "boolean", "indexing", "concatenation", "view",
}  # fmt: skip


def smoke(operators: tuple[str, ...] | None = None, dtypes: tuple[str, ...] | None = None) -> tuple[Case, ...]:
    return SmokeSuite().cases(CaseQuery(operators, dtypes))


def draw(recipe: Tensor, generator: torch.Generator) -> torch.Tensor:
    count = (operators.storage_extent(recipe),)
    match recipe.fill:
        case Normal(mean=mean, std=std):
            values = torch.randn(count, generator=generator, dtype=torch.float64) * std + mean
        case Uniform(low=low, high=high):
            values = torch.rand(count, generator=generator, dtype=torch.float64) * (high - low) + low
        case Integers(low=low, high=high):
            values = torch.randint(low, high, count, generator=generator)
        case Booleans(p_true=p_true):
            values = torch.rand(count, generator=generator) < p_true
    return operators.view_of(values.to(operators.torch_dtype(recipe.dtype)), recipe)


def call(case: Case, seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    tensors = [draw(recipe, generator) for recipe in tensors_of(case)]
    args, kwargs = operators.build_arguments(case, tensors, CPU)
    return operators.flatten_outputs(operators.resolve(case.operator)(*args, **kwargs))


def by_operator(cases: tuple[Case, ...]) -> dict[str, list[Case]]:
    grouped: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        grouped[case.operator].append(case)
    return grouped


@pytest.mark.parametrize("case", smoke(), ids=lambda case: f"{case.operator}({case.label})")
def test_torch_runs_the_case_and_every_draw_gives_finite_values_of_the_same_form(case: Case) -> None:
    first, second = call(case, 1), call(case, 2)
    form = [(output.shape, output.dtype, output.stride()) for output in first]
    assert form == [(output.shape, output.dtype, output.stride()) for output in second]
    assert all(bool(torch.isfinite(output).all()) for output in first + second)


@pytest.mark.parametrize("dtype", FLOATS)
def test_torch_runs_every_case_in_every_floating_point_dtype_that_may_be_asked_for(dtype: str) -> None:
    for case in smoke(dtypes=(dtype,)):
        if not case.timed:
            assert all(bool(torch.isfinite(output).all()) for output in call(case, 3)), case.label


def test_every_kind_of_operator_is_there() -> None:
    assert KINDS - {tag for case in smoke() for tag in case.tags} == set()
    assert len(by_operator(smoke())) >= 16


def test_tags_say_what_the_recipes_are() -> None:
    for case in smoke():
        recipes, tags = tensors_of(case), set(case.tags)
        assert case.timed == ("speed" in tags), case
        assert ("offset" in tags) == any(recipe.offset for recipe in recipes), case
        assert ("noncontiguous" in tags) == any(recipe.strides is not None for recipe in recipes), case
        outputs = call(case, 4)
        assert ("empty" in tags) == (outputs[0].numel() == 0), case
        if "one-element" in tags:
            assert outputs[0].numel() == 1, case
        assert ("multiple-outputs" in tags) == (len(outputs) > 1), case
        assert ("inplace" in tags) == bool(operators.contract_of(case).mutated), case


def test_strided_recipes_really_are_not_contiguous() -> None:
    generator = torch.Generator().manual_seed(0)
    for case in smoke():
        for recipe in tensors_of(case):
            assert draw(recipe, generator).is_contiguous() == (recipe.strides is None), case


@pytest.mark.parametrize("operator", sorted(by_operator(smoke())))
def test_every_operator_has_its_edge_cases(operator: str) -> None:
    cases = by_operator(smoke())[operator]
    tags = {tag for case in cases for tag in case.tags}
    assert {"empty", "one-element", "odd", "noncontiguous"} <= tags
    if operator != "aten.max.dim":
        dtypes = {recipe.dtype for case in cases for recipe in tensors_of(case)}
        assert len(dtypes) >= 2, "several dtypes"


def test_the_suite_stays_small_enough_for_a_minute() -> None:
    cases = smoke()
    assert 110 <= len(cases) <= 160
    assert 20 <= sum(case.timed for case in cases) <= 25
    assert all(sum(output.numel() for output in call(case, 5)) < 1 << 13 for case in cases if not case.timed)


def test_reductions_that_return_indices_have_no_ties_to_speak_of() -> None:
    for case in smoke(("max.dim",)):
        (recipe,) = tensors_of(case)
        assert recipe.dtype == "float32"
        assert all(size < 16 for size in recipe.shape)


def test_keys_are_unique_and_operators_stand_together_in_a_stable_order() -> None:
    for dtypes in (None, ("bfloat16",), ("float32", "float16")):
        cases = smoke(dtypes=dtypes)
        assert len({case.key for case in cases}) == len(cases)
        assert list(cases) == [case for group in by_operator(cases).values() for case in group]
        assert cases == smoke(dtypes=dtypes)


def test_cases_survive_the_journal() -> None:
    for case in smoke():
        again = decode(encode(case), Case)
        assert again == case
        assert again.key == case.key


@pytest.mark.parametrize("name", ["aten.add.Tensor", "add.Tensor", "add", "aten.add"])
def test_an_operator_is_asked_for_by_overload_or_base_name(name: str) -> None:
    assert {case.operator for case in smoke((name,))} == {"aten.add.Tensor"}


def test_a_request_for_two_operators_keeps_only_their_cases() -> None:
    expected = tuple(case for case in smoke() if case.operator in ("aten.mm.default", "aten.relu_.default"))
    assert smoke(("relu_", "mm")) == expected


def test_an_unknown_operator_is_named_with_the_nearest_known_one() -> None:
    with pytest.raises(UsageError, match=r"unknown smoke operator 'gather_'\. Did you mean 'gather'\? Known: .*where"):
        smoke(("relu", "gather_"))


def test_all_unknown_operators_are_named_at_once() -> None:
    with pytest.raises(UsageError, match=r"^unknown smoke operators 'nonesuch', 'conv9'\.") as caught:
        smoke(("nonesuch", "mm", "conv9"))
    assert "\n" not in str(caught.value)


def test_a_requested_float_dtype_replaces_every_float_dtype_and_nothing_else() -> None:
    changed = smoke(dtypes=("bfloat16",))
    used = {recipe.dtype for case in changed for recipe in tensors_of(case)}
    assert used & set(FLOATS) == {"bfloat16"}
    without_floats = [case for case in smoke() if not {recipe.dtype for recipe in tensors_of(case)} & set(FLOATS)]
    assert without_floats
    assert [case for case in changed if case in without_floats] == without_floats
    assert by_operator(changed).keys() == by_operator(smoke()).keys()


def test_each_float_case_comes_once_per_requested_float_dtype() -> None:
    one, two = smoke(("gather",), ("float64",)), smoke(("gather",), ("float64", "float16", "float64"))
    assert len(two) == 2 * len(one)


def test_a_request_for_exact_dtypes_alone_keeps_the_cases_that_use_them() -> None:
    for case in smoke(dtypes=("uint8", "int16")):
        assert {recipe.dtype for recipe in tensors_of(case)} <= {"uint8", "int16"}
    assert {case.operator for case in smoke(dtypes=("uint8", "int16"))} == {
        "aten.bitwise_and.Tensor",
        "aten.floor_divide.default",
    }


def test_a_dtype_in_which_an_operator_has_no_case_is_said_so() -> None:
    with pytest.raises(UsageError, match=r"no int8 case of relu\. Ask for a floating-point dtype \(float64"):
        smoke(("relu",), ("int8",))


@pytest.mark.parametrize("name", ["f32", "float", "torch.float32", "complex64"])
def test_an_unknown_dtype_is_an_error_that_lists_the_known_ones(name: str) -> None:
    with pytest.raises(UsageError, match=f"unknown dtype '{name}'") as caught:
        smoke(dtypes=("float32", name))
    assert all(known in str(caught.value) for known in FLOATS + EXACT)


def test_indices_stay_within_the_dimension_that_they_index() -> None:
    for case in smoke(("index_select", "gather")):
        source, dim, index = case.args
        assert isinstance(source, Tensor)
        assert isinstance(dim, Scalar)
        assert isinstance(dim.value, int)
        assert isinstance(index, Tensor)
        assert index.fill == Integers(0, source.shape[dim.value])
    for case in smoke(("embedding",)):
        table, index = case.args
        assert isinstance(table, Tensor)
        assert isinstance(index, Tensor)
        assert index.fill == Integers(0, table.shape[0])


def test_listing_cases_imports_no_torch() -> None:
    code = (
        "import sys; from torchstone.suites.smoke import SmokeSuite; from torchstone.suites import CaseQuery; "
        "assert SmokeSuite().cases(CaseQuery()); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
