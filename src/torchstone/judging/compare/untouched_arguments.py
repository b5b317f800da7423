"""Checks, bit for bit, that a call has not changed arguments that it must only read."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from torchstone.calls.bitwise_equality import bits
from torchstone.judging.comparison_result import Mismatch
from torchstone.judging.number_wording import shown
from torchstone.judging.reference.expected import Expected
from torchstone.judging.same_values import first_and_last
from torchstone.schema import WrongResult


@dataclass(frozen=True, eq=False)
class Change:
    """Compares an argument that must not change with its storage after the call, bit for bit."""

    position: int
    expected: Expected
    after: torch.Tensor

    def count(self) -> torch.Tensor:
        """How many elements of the storage changed; a scalar on the device."""
        return self._differs().sum().to(torch.float64)

    def mismatch(self) -> Mismatch:
        differs = self._differs()
        first, last = first_and_last(differs)
        before, after = self._before[first].item(), self.after[first].item()
        message = (
            f"argument {self.position} must not change: {int(differs.sum())} of {differs.numel()} elements of its "
            f"storage did, the first at {first}: {shown(before)} became {shown(after)}"
        )
        wrong = WrongResult(
            kind="argument",
            position=self.position,
            text="an argument that must not change was changed",
            elements=differs.numel(),
            wrong=int(differs.sum()),
            first_wrong=first,
            last_wrong=last,
        )
        return Mismatch("mutation", message, wrong=wrong)

    @property
    def _before(self) -> torch.Tensor:
        return self.expected.call.tensors[self.position].storage

    def _differs(self) -> torch.Tensor:
        differs = (bits(self._before.unsqueeze(0)) != bits(self.after.unsqueeze(0)))[0]
        return differs.reshape(-1, 2).any(dim=1) if self.after.dtype.is_complex else differs


def kept(expected: Expected) -> list[int]:
    """Positions of the tensor arguments that the operator only reads."""
    written = expected.batch.reference.contract.mutated
    return [position for position in range(len(expected.call.tensors)) if position not in written]
