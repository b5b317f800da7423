"""Draws, in secret for each call, which positions of a result are examined, so that no kernel can prepare for them."""

from __future__ import annotations

import secrets

import torch


def secret_places(elements: int, most: int) -> torch.Tensor:
    """Up to ``most`` different positions spread over a result, on the host. All positions if there are no more."""
    if elements <= most:
        return torch.arange(elements)
    source = torch.Generator().manual_seed(secrets.randbits(63))
    begins = torch.arange(most + 1) * elements // most
    chance = torch.rand(most, generator=source, dtype=torch.float64)
    return begins[:-1] + (chance * begins.diff()).to(torch.int64)
