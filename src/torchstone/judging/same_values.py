"""Tests whether tensors hold the same values, with NaN equal to NaN, and finds the first and last marked element."""

from __future__ import annotations

import torch


def elementwise_same(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Where two tensors hold the same value."""
    return (one == other) | ((one != one) & (other != other))


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors have one shape and the same values."""
    return one.shape == other.shape and (torch.equal(one, other) or bool(elementwise_same(one, other).all()))


def first_and_last(marked: torch.Tensor) -> tuple[int, int]:
    """Where the first and the last marked element stand in the flattened tensor. Some element must be marked.

    Without a list of all of them, which takes eight bytes for each.
    """
    flat = marked.reshape(-1).to(torch.uint8)
    return int(flat.argmax()), flat.numel() - 1 - int(flat.flip(0).argmax())
