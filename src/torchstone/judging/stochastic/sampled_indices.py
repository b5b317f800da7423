"""Finds the values that random indices (multinomial) select from an argument, so that these can be judged too.

The weights differ from call to call, so the drawn indices show little. The selected weights show more: a kernel that
ignores the weights selects small ones as often as large ones.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch


def source_of(drawn: torch.Tensor, arguments: Iterable[torch.Tensor]) -> torch.Tensor | None:
    """The argument whose last dimension torch's draws ``(draws, *shape)`` may index; None if there is none."""
    if drawn.dtype is not torch.int64 or drawn.dim() < 2 or not drawn.numel():
        return None
    low, high = (int(each) for each in drawn.aminmax())
    for argument in arguments:
        fits = argument.dim() == drawn.dim() - 1 and argument.shape[:-1] == drawn.shape[1:-1]
        if fits and argument.is_floating_point() and low >= 0 and high < argument.shape[-1]:
            return argument
    return None


def selected_values(source: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """The values of ``source`` that indices ``(draws, *shape)`` select, row by row."""
    return source.expand(len(indices), *source.shape).gather(-1, indices)


def range_message(source: torch.Tensor, result: torch.Tensor) -> str | None:
    """Return a message if indices are out of range; else None."""
    low, high = (int(each) for each in result.aminmax())
    if low >= 0 and high < source.shape[-1]:
        return None
    return f"indices lie between {low} and {high}; expected 0 to {source.shape[-1] - 1}"
