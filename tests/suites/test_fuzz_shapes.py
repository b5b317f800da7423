"""Layouts and arguments of generated cases, by hypothesis itself."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given, settings

from torchstone import operators
from torchstone.schema import Normal, Tensor
from torchstone.suites.choices import SeededChoices
from torchstone.suites.families import FAMILIES, MOST_ELEMENTS, Slot, draw_shape
from torchstone.suites.memory import LAYOUTS, laid_out
from torchstone.suites.strategies import DrawnChoices

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


def test_every_family_names_each_tensor_or_has_nothing_to_say() -> None:
    for family in FAMILIES:
        for rank in range(5):
            found = family(SeededChoices(1), SLOTS, rank)
            assert found is None or set(found.of) == {"self", "a", "b"}
