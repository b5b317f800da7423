"""Layouts and arguments of generated cases, by hypothesis itself."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given, settings

from torchstone import operators
from torchstone.schema import Normal, Tensor
from torchstone.suites.hypothesis_strategies import DrawnChoices
from torchstone.suites.memory_layouts import LAYOUTS, laid_out
from torchstone.suites.random_choices import OrdinaryChoices, SeededChoices
from torchstone.suites.shape_families import FAMILIES, MOST_ELEMENTS, Slot, draw_shape

SLOTS = tuple(Slot(name, listed=False, optional=False, written=False, role="value") for name in ("self", "a", "b"))


@given(st.data(), st.integers(0, 4), st.sampled_from(LAYOUTS))
@settings(max_examples=200, deadline=None)
def test_a_layout_gives_every_element_its_place(data: st.DataObject, rank: int, layout: str) -> None:
    choices = DrawnChoices(data.draw)
    plain = Tensor(draw_shape(choices, rank), "float32", Normal())
    placed = laid_out(plain, layout, choices, expandable=False)  # type: ignore[arg-type]
    assert placed.shape == plain.shape
    places = operators.view_of(operators_storage(placed), placed).flatten().tolist()
    assert len(set(places)) == len(places), "no two elements share memory"


def operators_storage(tensor: Tensor):  # type: ignore[no-untyped-def]
    import torch

    return torch.arange(operators.storage_extent(tensor))


@given(st.data(), st.integers(0, 4))
@settings(max_examples=100, deadline=None)
def test_shapes_stay_small(data: st.DataObject, rank: int) -> None:
    shape = draw_shape(DrawnChoices(data.draw), rank)
    assert len(shape) == rank
    elements = 1
    for size in shape:
        elements *= size
    assert elements <= MOST_ELEMENTS


def test_forms_are_learned_with_the_same_sizes_whatever_the_limit_is() -> None:
    shapes = {draw_shape(OrdinaryChoices(seed), 4, most) for seed in range(200) for most in (1, MOST_ELEMENTS)}
    assert len(shapes) <= 200
    assert {size for shape in shapes for size in shape} == {3, 4, 5, 7, 11}


def test_every_family_names_each_tensor_or_has_nothing_to_say() -> None:
    for family in FAMILIES:
        for rank in range(5):
            found = family(SeededChoices(1), SLOTS, rank)
            assert found is None or set(found.of) == {"self", "a", "b"}
