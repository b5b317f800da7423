"""Arguments that a call must leave alone, bit for bit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from torchstone.judging.outcome import Mismatch
from torchstone.judging.reference import Expected
from torchstone.judging.wording import shown

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True, eq=False)
class Change:
    """An argument that must be, bit for bit, as it was drawn."""

    position: int
    expected: Expected
    after: torch.Tensor

    def count(self) -> torch.Tensor:
        """How many elements of the storage changed; a scalar on the device."""
        return self._differs().sum().to(torch.float64)

    def mismatch(self) -> Mismatch:
        differs = self._differs()
        first = int(differs.to(torch.uint8).argmax())
        before, after = self._before[first].item(), self.after[first].item()
        message = (
            f"argument {self.position} must not change: {int(differs.sum())} of {differs.numel()} elements of its "
            f"storage did, the first at {first}: {shown(before)} became {shown(after)}"
        )
        return Mismatch("mutation", message)

    @property
    def _before(self) -> torch.Tensor:
        return self.expected.call.tensors[self.position].storage

    def _differs(self) -> torch.Tensor:
        differs = (bits(self._before.unsqueeze(0)) != bits(self.after.unsqueeze(0)))[0]
        return differs.reshape(-1, 2).any(dim=1) if self.after.dtype.is_complex else differs


def kept(expected: Expected) -> list[int]:
    """Tensor arguments that the operator only reads."""
    written = expected.batch.reference.contract.mutated
    return [position for position in range(len(expected.call.tensors)) if position not in written]


def bits(storages: torch.Tensor) -> torch.Tensor:
    """``(calls, extent)`` as integers, so that NaN equals itself and -0.0 does not equal 0.0."""
    if storages.dtype.is_complex:
        storages = torch.view_as_real(storages).flatten(1)
    return storages.view(_BITS[storages.element_size()])


def are_identical(pairs: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> bool:
    """Whether the tensors of each pair have the same bits. One transfer from the device."""
    differ = []
    for one, other in pairs:
        if one.shape != other.shape or one.dtype != other.dtype:
            return False
        if one.numel():
            differ.append((_words(one) != _words(other)).view(torch.uint8).amax())
    return not differ or not bool(torch.stack(differ).any())


def _words(tensor: torch.Tensor) -> torch.Tensor:
    """As few and as long integers as possible: to compare them is a matter of how many there are."""
    flat = tensor.contiguous().view(-1)
    whole = flat.numel() * flat.element_size() % 8 == 0 and flat.data_ptr() % 8 == 0
    return flat.view(torch.int64) if whole else bits(flat.unsqueeze(0))
