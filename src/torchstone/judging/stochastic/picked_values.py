"""Random results that are indices into an argument: what they pick there is drawn as well.

Which of a thousand weights was drawn says next to nothing by its number, and the weights are others in every call. But
the weights themselves say it: a kernel that does not look at them picks small ones as often as large ones.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch


def source_of(drawn: torch.Tensor, arguments: Iterable[torch.Tensor]) -> torch.Tensor | None:
    """The argument into whose last dimension torch's own draws ``(draws, *shape)`` point; None: there is none."""
    if drawn.dtype is not torch.int64 or drawn.dim() < 2 or not drawn.numel():
        return None
    low, high = (int(each) for each in drawn.aminmax())
    for argument in arguments:
        fits = argument.dim() == drawn.dim() - 1 and argument.shape[:-1] == drawn.shape[1:-1]
        if fits and argument.is_floating_point() and low >= 0 and high < argument.shape[-1]:
            return argument
    return None


def picked(source: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """What ``(draws, *shape)`` of indices point at, row by row."""
    return source.expand(len(indices), *source.shape).gather(-1, indices)


def outside(source: torch.Tensor, result: torch.Tensor) -> str | None:
    """What is wrong with indices that point at nothing."""
    low, high = (int(each) for each in result.aminmax())
    if low >= 0 and high < source.shape[-1]:
        return None
    return f"indices from {low} to {high} occur; there are {source.shape[-1]} to choose from"
