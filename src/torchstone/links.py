"""The factors of a chain (:mod:`torchstone.chain`) on a device: both sides of the boundary follow them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from torchstone.chain import SPAN, Chain

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Links:
    """The factors of a chain, on a device."""

    def __init__(self, chain: Chain, device: torch.device) -> None:
        generator = torch.Generator(device).manual_seed(chain.seed)
        self._rows: list[torch.Tensor] = []
        for scaled in chain.arguments:
            table = torch.rand(SPAN + scaled.elements, generator=generator, device=device)
            factors = table.mul_(0.5).add_(0.5).to(getattr(torch, scaled.dtype))
            # Overlapping rows: to be indexed, never made contiguous, which would take gigabytes (index_select does).
            self._rows.append(factors.unfold(0, scaled.elements, 1))

    def follow(self, results: Sequence[torch.Tensor], arguments: Sequence[torch.Tensor]) -> None:
        """Scale the next call's arguments as this call's results want it."""
        sums = [_bits(result).sum(dtype=torch.int64) for result in results]
        start = sum(sums[1:], sums[0]).bitwise_and_(SPAN - 1).view(1)
        for rows, argument in zip(self._rows, arguments, strict=True):
            argument.mul_(rows[start].view(argument.shape))

    def followed(self, results: Sequence[torch.Tensor], arguments: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """What the arguments, each ``(calls, elements)``, were when the calls gave these results ``(calls, ...)``."""
        sums = [_bits(result).flatten(1).sum(dim=1, dtype=torch.int64) for result in results]
        starts = sum(sums[1:], sums[0]).bitwise_and_(SPAN - 1)[:-1]
        scaled = [argument.clone() for argument in arguments]
        for rows, argument in zip(self._rows, scaled, strict=True):
            argument[1:].mul_(rows[starts])
        return scaled


def _bits(result: torch.Tensor) -> torch.Tensor:
    if result.is_complex():
        result = torch.view_as_real(result)
    return result.view(_BITS[result.element_size()])


def leading(results: Sequence[object]) -> list[torch.Tensor]:
    """The results that decide how to go on: all tensors that hold anything."""
    return [result for result in results if isinstance(result, torch.Tensor) and result.numel()]
