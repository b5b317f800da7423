"""Compares tensors bit by bit: NaN equals itself, and -0.0 differs from 0.0."""

from __future__ import annotations

from collections.abc import Iterable

import torch

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def bits(storages: torch.Tensor) -> torch.Tensor:
    """Storages ``(calls, extent)`` viewed as integers, so that NaN equals itself and -0.0 does not equal 0.0."""
    if storages.dtype.is_complex:
        storages = torch.view_as_real(storages).flatten(1)
    return storages.view(_BITS[storages.element_size()])


def are_identical(pairs: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> bool:
    """Whether the tensors of each pair have the same bits. Takes one transfer from the device."""
    differ = []
    for one, other in pairs:
        if one.shape != other.shape or one.dtype != other.dtype:
            return False
        if one.numel():
            differ.append((_words(one) != _words(other)).view(torch.uint8).amax())
    return not differ or not bool(torch.stack(differ).any())


def _words(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor as 64-bit integers if possible, which are compared faster; else as integers of its item size."""
    flat = tensor.contiguous().view(-1)
    whole = flat.numel() * flat.element_size() % 8 == 0 and flat.data_ptr() % 8 == 0
    return flat.view(torch.int64) if whole else bits(flat.unsqueeze(0))
