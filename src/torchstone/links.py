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
        table = torch.rand(SPAN + chain.elements, generator=generator, device=device)
        # Overlapping rows: to be indexed, never made contiguous, which would take gigabytes (index_select does).
        self._rows = table.mul_(0.5).add_(0.5).to(getattr(torch, chain.dtype)).unfold(0, chain.elements, 1)

    def follow(self, results: Sequence[torch.Tensor], argument: torch.Tensor) -> None:
        """Scale the next call's argument as this call's leading results want it."""
        sums = [_bits(result).sum(dtype=torch.int64) for result in results]
        start = sum(sums[1:], sums[0]).bitwise_and_(SPAN - 1)
        argument.mul_(self._rows[start.view(1)].view(argument.shape))

    def followed(self, results: Sequence[torch.Tensor], arguments: torch.Tensor) -> torch.Tensor:
        """What the arguments ``(calls, elements)`` were when the calls gave these leading results ``(calls, ...)``."""
        sums = [_bits(result).flatten(1).sum(dim=1, dtype=torch.int64) for result in results]
        starts = sum(sums[1:], sums[0]).bitwise_and_(SPAN - 1)
        scaled = arguments.clone()
        scaled[1:].mul_(self._rows[starts[:-1]])
        return scaled


def _bits(result: torch.Tensor) -> torch.Tensor:
    if result.is_complex():
        result = torch.view_as_real(result)
    return result.view(_BITS[result.element_size()])


def leading(chain: Chain, results: Sequence[object]) -> list[torch.Tensor]:
    """The results that decide how to go on: all, or the first; of these the tensors that hold anything."""
    chosen = results if chain.all_results else results[:1]
    return [result for result in chosen if isinstance(result, torch.Tensor) and result.numel()]
