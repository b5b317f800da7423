"""Values on one side of zero, whole blocks, keys that are more or fewer than queries, models that point at values."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from torchstone import model_operators
from torchstone.judging import Mismatch, Reference, compare_many, draw_call, plant, planted_calls
from torchstone.judging.plans.all_true_or_false import NoneTrue, Whole
from torchstone.judging.plans.first_of_ties import promises_first_of_ties
from torchstone.judging.plans.one_sided_values import Above, Below
from torchstone.judging.reference.expected import states_format
from torchstone.judging.variant_tag import HIDDEN
from torchstone.judging.variants.pool import hidden_cases
from torchstone.judging.variants.sizes import whole_blocks
from torchstone.redteam.fixture_inputs import CASES
from torchstone.schema import (
    Booleans,
    Case,
    Integers,
    MemoryFormat,
    Normal,
    Scalar,
    SourceFile,
    SourceFiles,
    Tensor,
    tensors_of,
)
from torchstone.schema import Sequence as Listed

CPU = torch.device("cpu")
ARGMAX = Case("test", "aten.argmax.default", (Tensor((24, 60), "float32", Normal()), Scalar(1)))
CAUSAL = CASES["attention_causal_varied"]


def refused(case: Case, kernel: Callable[..., Any], seed: int) -> set[str]:
    """The plans on which a kernel is."""
    reference = Reference(case, CPU)
    found = planted_calls(reference.expect(draw_call(case, seed, CPU)), seed)
    answers = {
        each.call.planted: compare_many([each], [[kernel(*each.call.args)]], [each.inputs_after]) for each in found
    }
    return {plan for plan, answer in answers.items() if isinstance(answer, Mismatch)}


@pytest.mark.parametrize("seed", range(5))
def test_who_begins_at_zero_is_found_out_in_every_trial(seed: int) -> None:
    assert Below.name in refused(ARGMAX, lambda x, dim: x.clamp_min(0).argmax(dim), seed)
    least = Case("test", "aten.argmin.default", ARGMAX.args)
    assert Above.name in refused(least, lambda x, dim: x.clamp_max(0).argmin(dim), seed)
    assert not refused(ARGMAX, lambda x, dim: x.double().argmax(dim), seed)


def test_all_values_come_to_lie_on_the_side_that_is_asked_for() -> None:
    call = draw_call(ARGMAX, 3, CPU)
    before = call.tensors[0].view.clone()
    assert torch.equal(plant(call, Below.name).tensors[0].view, -before.abs())
    assert torch.equal(plant(call, Above.name).tensors[0].view, before.abs())


@pytest.mark.parametrize("size", [2, 3, 15, 16, 17, 42, 100, 131, 1000, 2048])
def test_whole_blocks_leave_nothing_over_and_are_no_larger(size: int) -> None:
    for seed in range(20):
        (new,) = whole_blocks({size: size}, random.Random(seed)).values()
        assert 2 <= new <= size
        assert new & (new - 1) == 0 or new % 16 == 0


def test_every_job_meets_whole_blocks_on_plain_memory() -> None:
    for seed in range(20):
        variants = hidden_cases(ARGMAX, 6, random.Random(seed))
        shapes = [recipe.shape for variant in variants for recipe in tensors_of(variant) if recipe.strides is None]
        assert any(shape[1] % 16 == 0 and shape[1] > 1 for shape in shapes), seed


@pytest.mark.parametrize("seed", range(10))
def test_causal_attention_is_given_more_keys_than_queries_and_fewer(seed: int) -> None:
    variants = hidden_cases(CAUSAL, 6, random.Random(seed))
    assert all(HIDDEN in variant.tags for variant in variants)
    lengths = [(tensors_of(each)[0].shape[-2], tensors_of(each)[1].shape[-2]) for each in variants]
    assert any(queries < keys for queries, keys in lengths)
    assert any(queries > keys for queries, keys in lengths)


def test_attention_that_sees_the_future_is_left_as_it_is() -> None:
    seen = Case("test", CAUSAL.operator, CAUSAL.args)
    lengths = {len(hidden_cases(seen, 6, random.Random(seed))) for seed in range(3)}
    assert max(lengths) <= 6


def test_masks_are_all_alike_and_indices_count_up_in_every_stated_case() -> None:
    condition = Tensor((64, 30), "bool", Booleans())
    x = Tensor((64, 30), "float32", Normal())
    where = Case("test", "aten.where.self", (condition, x, x))
    assert bool(plant(draw_call(where, 1, CPU), Whole.name).tensors[0].view.all())
    assert not bool(plant(draw_call(where, 1, CPU), NoneTrue.name).tensors[0].view.any())
    rows = Case("test", "aten.index_select.default", (x, Scalar(0), Tensor((9,), "int64", Integers(0, 64))))
    for seed in range(10):
        indices = plant(draw_call(rows, seed, CPU), Whole.name).tensors[1].view
        assert bool((indices.diff() == 1).all())
        assert 0 <= int(indices[0]) <= 55
        assert Whole.name in refused(rows, lambda x, dim, i: x[: len(i)] if bool((i.diff() == 1).all()) else x[i], seed)
        assert refused(where, _chosen_as_a_whole, seed) >= {Whole.name, NoneTrue.name}


def _chosen_as_a_whole(condition: torch.Tensor, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    if bool(condition.all()):
        return one * 2
    return torch.where(condition, one, other) if bool(condition.any()) else other * 2


def model(body: str) -> Case:
    text = f"import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return {body}\n"
    text += "def get_inputs():\n    return [torch.randn(8, 16)]\ndef get_init_inputs():\n    return []\n"
    name = f"points{abs(hash(body))}"
    problem = SourceFiles((SourceFile(f"{name}.py", text),), "Model", name)
    arguments = (Listed(()), Tensor((8, 16), "float32", Normal()))
    case = Case("test", f"kernelbench.{name}.default", arguments, jitter=False, model=problem)
    model_operators.register(case)
    return case


@pytest.mark.parametrize("body", ["x.argmax(1)", "x.t().contiguous().argmin(0)", "x.max(1)[1]"])
def test_of_models_that_only_look_for_the_largest_the_first_of_equals_is_promised(body: str) -> None:
    assert promises_first_of_ties(draw_call(model(body), 1, CPU))


@pytest.mark.parametrize("body", ["x.topk(3)[1]", "(x * 3).argmax(1)", "x.sort(1)[1]", "x.relu()"])
def test_of_others_nobody_knows(body: str) -> None:
    assert not promises_first_of_ties(draw_call(model(body), 1, CPU))


def test_who_is_asked_for_contiguous_memory_says_how_results_lie() -> None:
    x = Tensor((8, 6), "float32", Normal(), strides=(1, 8))
    assert states_format(Case("test", "aten.contiguous.default", (x,)))
    kept = {"memory_format": MemoryFormat("preserve_format")}
    assert not states_format(Case("test", "aten.contiguous.default", (x,), kept))
    assert not states_format(Case("test", "aten.clone.default", (x,)))
