"""Computes the arguments of chained calls on a device, both where the kernel runs and where it is judged.

Chained calls (:mod:`torchstone.chain`) get arguments that depend on the results of the call before.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from torchstone.chain import SPAN, Chain, Moved

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_MOVED_AS = {
    torch.float8_e4m3fn: torch.float32,
    torch.float8_e5m2: torch.float32,
    torch.float8_e4m3fnuz: torch.float32,
    torch.float8_e5m2fnuz: torch.float32,
    torch.uint16: torch.int32,
    torch.uint32: torch.int64,
    torch.uint64: torch.int64,
}
"""Dtype for which torch has no addition -> dtype in which its values are moved instead."""


class _Table:
    """The table that moves one argument: overlapping rows of factors and addends. Results select one row.

    Read rows by indexing. ``index_select`` would make the unfolded table contiguous, which takes gigabytes.
    """

    def __init__(self, moved: Moved, generator: torch.Generator, device: torch.device) -> None:
        stored: torch.dtype = getattr(torch, moved.dtype)
        dtype = _MOVED_AS.get(stored, stored)
        shape = (2, SPAN + moved.elements)
        if dtype.is_floating_point:
            shares, ends = torch.rand(shape, generator=generator, device=device)
            factors = shares.mul_(0.25).add_(0.5).to(dtype)
            addends = ends.mul_(moved.high - moved.low).add_(moved.low).mul_(1.0 - factors.to(torch.float32)).to(dtype)
            self._factors, self._addends = (table.unfold(0, moved.elements, 1) for table in (factors, addends))
        else:
            self._low, self._range = int(moved.low), int(moved.high) - int(moved.low)
            steps = torch.randint(0, self._range, shape[1:], generator=generator, device=device).to(dtype)
            self._addends = steps.unfold(0, moved.elements, 1)
        self._dtype = dtype

    def move(self, argument: torch.Tensor, which: int | torch.Tensor) -> None:
        """Move the argument in place by the row or rows ``which``.

        Floats are moved by a multiplication and an addition that round separately: a fused multiply-add, which rounds
        once, would give another result. Integers are shifted and wrap around within their range.
        """
        values = argument.to(self._dtype)  # the argument itself, unless its dtype has no addition
        self._move(values, which)
        if values is not argument:
            argument.copy_(values)

    def _move(self, argument: torch.Tensor, which: int | torch.Tensor) -> None:
        addends_of_row = self._addends[which].view(argument.shape)
        if self._dtype.is_floating_point:
            argument.mul_(self._factors[which].view(argument.shape)).add_(addends_of_row)
        elif self._dtype is torch.bool:
            argument.logical_xor_(addends_of_row)
        else:
            argument.sub_(self._low).add_(addends_of_row).remainder_(self._range).add_(self._low)


class Links:
    """The tables of a chain, on a device."""

    def __init__(self, chain: Chain, device: torch.device) -> None:
        generator = torch.Generator(device).manual_seed(chain.seed)
        self._tables = [_Table(moved, generator, device) for moved in chain.arguments]

    def move_next_arguments(self, results: Sequence[torch.Tensor], arguments: Sequence[torch.Tensor]) -> None:
        """Move the next call's arguments in place, by the rows that the bits of this call's results select."""
        start = _starts([result.unsqueeze(0) for result in results])
        # On the CPU a row number gives the row without a copy; reading it from a GPU would mean a wait.
        which = int(start) if start.device.type == "cpu" else start
        for table, argument in zip(self._tables, arguments, strict=True):
            table.move(argument, which)

    def recomputed_arguments(
        self, results: Sequence[torch.Tensor], arguments: Sequence[torch.Tensor]
    ) -> list[torch.Tensor]:
        """Copies of the drawn arguments, each ``(calls, elements)``, moved as in a chain of these results.

        Each result is ``(calls, ...)``. It moves the arguments of the next call; those of the first call stay.
        """
        starts = _starts(results)[:-1]
        moved = [argument.clone() for argument in arguments]
        for table, argument in zip(self._tables, moved, strict=True):
            table.move(argument[1:], starts)
        return moved


def _starts(results: Sequence[torch.Tensor]) -> torch.Tensor:
    """Per call, the row of the tables that its results select. Each result is ``(calls, ...)``, of any rank."""
    sums = [_sum_of_bits(result) for result in results]
    return sum(sums[1:], sums[0]).bitwise_and_(SPAN - 1)


def _sum_of_bits(result: torch.Tensor) -> torch.Tensor:
    """Per call, the sum of the bits of all elements, in any layout: a contiguous copy would cost measured time."""
    bits = _bits(result).unsqueeze(-1)  # so that there is always a dimension to sum over, also of 0-dimensional results
    return bits.sum(dim=tuple(range(1, bits.dim())), dtype=torch.int64)


def _bits(result: torch.Tensor) -> torch.Tensor:
    result = result.resolve_conj().resolve_neg()  # the values, as the judge reads them
    if result.is_complex():
        result = torch.view_as_real(result)
    return result.view(_BITS[result.element_size()])


def selecting_results(results: Sequence[object]) -> list[torch.Tensor]:
    """The results that select the next arguments: all tensors that are not empty."""
    return [result for result in results if isinstance(result, torch.Tensor) and result.numel()]
