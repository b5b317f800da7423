"""Tests whether tensors hold the same values, with NaN equal to NaN, and finds the first and last marked element."""

from __future__ import annotations

import torch


def elementwise_same(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Mask of the elements in which two tensors have the same value."""
    return (one == other) | ((one != one) & (other != other))


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors have one shape and the same values."""
    return one.shape == other.shape and (torch.equal(one, other) or bool(elementwise_same(one, other).all()))


def first_and_last(marked: torch.Tensor) -> tuple[int, int]:
    """Indices of the first and the last True element in the flattened tensor. At least one must be True.

    No list of all True elements is made: it would take eight bytes for each.
    """
    flat = marked.reshape(-1).to(torch.uint8)
    return int(flat.argmax()), flat.numel() - 1 - int(flat.flip(0).argmax())
