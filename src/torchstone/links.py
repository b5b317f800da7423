"""The links of a chain (:mod:`torchstone.chain`) on a device: both sides of the boundary follow them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from torchstone.chain import SPAN, Chain

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Links:
    """The factors and addends of a chain, on a device.

    Applied one after the other, each rounded: the same on both sides, whatever a device makes of both at once.
    """

    def __init__(self, chain: Chain, device: torch.device) -> None:
        generator = torch.Generator(device).manual_seed(chain.seed)
        self._rows: list[tuple[torch.Tensor, torch.Tensor]] = []
        for moved in chain.arguments:
            dtype = getattr(torch, moved.dtype)
            shares, ends = torch.rand((2, SPAN + moved.elements), generator=generator, device=device)
            factors = shares.mul_(0.25).add_(0.5).to(dtype)
            addends = ends.mul_(moved.high - moved.low).add_(moved.low).mul_(1.0 - factors.to(torch.float32)).to(dtype)
            # Overlapping rows: to be indexed, never made contiguous, which would take gigabytes (index_select does).
            self._rows.append((factors.unfold(0, moved.elements, 1), addends.unfold(0, moved.elements, 1)))

    def follow(self, results: Sequence[torch.Tensor], arguments: Sequence[torch.Tensor]) -> None:
        """Move the next call's arguments as this call's results want it."""
        sums = [_bits(result).sum(dtype=torch.int64) for result in results]
        start = sum(sums[1:], sums[0]).bitwise_and_(SPAN - 1)
        # On the host a row is had without a copy, by its number; a device would have to be waited for to tell it.
        which = int(start) if start.device.type == "cpu" else start.view(1)
        for (factors, addends), argument in zip(self._rows, arguments, strict=True):
            argument.mul_(factors[which].view(argument.shape)).add_(addends[which].view(argument.shape))

    def followed(self, results: Sequence[torch.Tensor], arguments: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """What the arguments, each ``(calls, elements)``, were when the calls gave these results ``(calls, ...)``."""
        sums = [_bits(result).flatten(1).sum(dim=1, dtype=torch.int64) for result in results]
        starts = sum(sums[1:], sums[0]).bitwise_and_(SPAN - 1)[:-1]
        moved = [argument.clone() for argument in arguments]
        for (factors, addends), argument in zip(self._rows, moved, strict=True):
            argument[1:].mul_(factors[starts]).add_(addends[starts])
        return moved


def _bits(result: torch.Tensor) -> torch.Tensor:
    if result.is_complex():
        result = torch.view_as_real(result)
    return result.view(_BITS[result.element_size()])


def leading(results: Sequence[object]) -> list[torch.Tensor]:
    """The results that decide how to go on: all tensors that hold anything."""
    return [result for result in results if isinstance(result, torch.Tensor) and result.numel()]
