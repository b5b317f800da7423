"""Indices of max pooling: each inside its window, wherever the window lies."""

from __future__ import annotations

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from torchstone.calls.draw_arguments import draw_call
from torchstone.errors import UsageError
from torchstone.schema import Case, Tensor, WindowPositions

CPU = torch.device("cpu")


def drawn(shape: tuple[int, ...], fill: WindowPositions, dtype: str = "int64", seed: int = 1) -> torch.Tensor:
    view = draw_call(Case("x", "aten.clone.default", (Tensor(shape, dtype, fill),)), seed, CPU).args[0]
    assert isinstance(view, torch.Tensor)
    return view


@given(
    plane=st.tuples(st.integers(1, 12), st.integers(1, 12)),
    kernel=st.integers(1, 4),
    stride=st.integers(1, 4),
    padding=st.integers(0, 2),
    dilation=st.integers(1, 3),
    ceil_mode=st.booleans(),
    seed=st.integers(0, 1 << 30),
)
def test_every_position_lies_in_the_window_of_its_element(
    plane: tuple[int, int], kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool, seed: int
) -> None:
    assume(padding <= kernel // 2)
    assume(min(plane) + 2 * padding > dilation * (kernel - 1))
    both = [[number, number] for number in (kernel, stride, padding, dilation)]
    pooled, _ = torch.ops.aten.max_pool2d_with_indices.default(torch.zeros(1, 2, *plane), *both, ceil_mode)
    for axis, size in enumerate(plane):
        begins = [place * stride - padding for place in range(pooled.shape[axis - 2])]
        windows = [range(begin, begin + kernel * dilation, dilation) for begin in begins]
        assume(all(any(0 <= place < size for place in window) for window in windows))
    fill = WindowPositions(plane, *(tuple(pair) for pair in both))
    positions = drawn(tuple(pooled.shape), fill, seed=seed)
    for axis, found in enumerate((positions // plane[1], positions % plane[1])):
        begin = torch.arange(pooled.shape[axis - 2]) * stride - padding
        steps = found - (begin.view(-1, 1) if axis == 0 else begin)
        assert bool(((found >= 0) & (found < plane[axis])).all())
        assert bool(((steps >= 0) & (steps <= (kernel - 1) * dilation) & (steps % dilation == 0)).all())


def test_every_position_of_a_window_is_drawn() -> None:
    fill = WindowPositions((4, 4), (2, 2), (2, 2))
    assert set(drawn((500, 1, 2, 2), fill)[:, 0, 0, 0].tolist()) == {0, 1, 4, 5}


@pytest.mark.parametrize(("shape", "dtype"), [((4,), "int64"), ((4, 4), "float32"), ((4, 4), "bool")])
def test_positions_are_integers_in_two_dimensions_or_more(shape: tuple[int, ...], dtype: str) -> None:
    with pytest.raises(UsageError, match="'window_positions' does not fit"):
        drawn(shape, WindowPositions((4, 4), (1, 1), (1, 1)), dtype)
