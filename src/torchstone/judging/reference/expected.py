"""The expected result of a call: torch's results, exact values with error bounds, and data for a quick comparison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from torchstone import operators, schema
from torchstone.calls.random_arguments import DrawnCall
from torchstone.calls.reference_calls import Evaluation, ResultPosition, wide_dtype
from torchstone.judging.reference import bounds
from torchstone.judging.reference.float64 import FEW_ELEMENTS

if TYPE_CHECKING:
    from torchstone.judging.reference.case_reference import Reference


def states_format(case: schema.Case) -> bool:
    """Whether the case states the layout of results: a ``memory_format`` (not ``preserve_format``), or
    ``contiguous``.
    """
    arguments = (*case.args, *case.kwargs.values())
    formats = [each.value for each in arguments if isinstance(each, schema.MemoryFormat)]
    return any(each != "preserve_format" for each in formats) or (
        operators.traits(case.operator).lays_out and not formats
    )


@dataclass(frozen=True, eq=False)
class ExpectedOutput:
    """One returned leaf of one call."""

    native: Any
    """torch's own tensor, or the plain value itself."""
    dtype: torch.dtype | None = None
    """None for plain values, as are shape and strides."""
    shape: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None
    """torch's own."""
    must_lie_so: bool = False
    """Whether the case states a ``memory_format``: then the strides are part of the answer."""
    is_argument: int | None = None
    """The tensor argument that is returned (in-place, out=), by its position among the tensor arguments."""
    fresh: bool = False
    """Whether the operator promises new memory, shared with no argument and no other output."""


@dataclass(frozen=True, eq=False)
class ExpectedValues:
    """What one tensor of one call must hold."""

    native: torch.Tensor
    exact: torch.Tensor | None
    """In float64 or complex128; None where the operator does not run in it, or the values are not continuous."""
    bound: torch.Tensor | None
    """How far each element may lie from ``centre``; None: equal to torch's."""
    spread: bounds.Spread | None = None
    """Limits of the errors of all elements together; None: there are none beyond the bound."""

    @property
    def centre(self) -> torch.Tensor:
        """What the bound is around."""
        return self.exact if self.exact is not None else self.native.to(wide_dtype(self.native.dtype))


@dataclass(frozen=True, eq=False)
class Screen:
    """How close to torch's own a result must be to be accepted without float64: relative to its magnitude plus a
    level.
    """

    share: float
    level: torch.Tensor
    """A scalar on the device; NaN where only equality passes."""
    inside: torch.Tensor | None
    """For a written argument's storage, the elements of its view: only these may differ at all."""
    rms: float
    """Largest root mean square of the distances, in shares."""
    bias: float
    """Largest mean distance, in shares."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Calls whose native results are stacked."""

    reference: Reference
    calls: tuple[DrawnCall, ...]
    evaluation: Evaluation


@dataclass(frozen=True)
class Expected:
    """What one call must give and leave behind."""

    batch: Batch
    index: int
    """Which call of the batch."""
    with_bounds: bool
    """Whether it is compared in full even if it is close to torch's own result but not equal to it."""

    @property
    def call(self) -> DrawnCall:
        return self.batch.calls[self.index]

    @property
    def outputs(self) -> tuple[ExpectedOutput, ...]:
        """One per returned leaf, lists and tuples opened. Empty for an operator that declares no return."""
        leaves = self.batch.evaluation.results[self.index]
        return tuple(self._output(position, leaf) for position, leaf in enumerate(leaves))

    @property
    def new_tensors(self) -> list[torch.Tensor]:
        """The returned tensors that lie in memory of their own."""
        shared = self.batch.evaluation.shared
        tensors = [(place, output) for place, output in enumerate(self.outputs) if output.dtype is not None]
        return [output.native for place, output in tensors if output.is_argument is None and place not in shared]

    @property
    def inputs_after(self) -> list[torch.Tensor]:
        """The storage of every tensor argument as torch itself leaves it. All but the written ones: as drawn."""
        written = self.batch.evaluation.tensors
        return [
            written[ResultPosition("argument", position)][self.index]
            if ResultPosition("argument", position) in written
            else drawn.storage
            for position, drawn in enumerate(self.call.tensors)
        ]

    @property
    def native(self) -> dict[ResultPosition, torch.Tensor]:
        """torch's own returned tensors and written storages."""
        return {place: tensor[self.index] for place, tensor in self.batch.evaluation.tensors.items()}

    def values(self, *, closely: bool = False) -> dict[ResultPosition, ExpectedValues]:
        """Every returned tensor and every written storage with its bound. Costs several float64 evaluations.

        ``closely``: with slopes from more probes, for small calls, which a few probes may mislead by chance.
        """
        return self.batch.reference.bounded(self.call, self.native, closely=closely)

    @property
    def gains_by_looking_closely(self) -> bool:
        """Whether more probes could change the verdict: for small calls that are judged by bounds."""
        if not self.batch.reference.screens:
            return False
        elements = sum(tensor.storage.numel() for tensor in self.call.tensors)
        return elements + sum(tensor.numel() for tensor in self.native.values()) <= FEW_ELEMENTS

    def _output(self, position: int, leaf: Any) -> ExpectedOutput:
        if not isinstance(leaf, torch.Tensor):
            return ExpectedOutput(leaf)
        declared = self.batch.reference.contract.returned_arguments
        is_argument = declared[position] if position < len(declared) else None
        promised = self.batch.reference.contract.promises_fresh(position)
        fresh = promised and position not in self.batch.evaluation.shared
        lies_so = states_format(self.call.case)
        return ExpectedOutput(leaf, leaf.dtype, tuple(leaf.shape), tuple(leaf.stride()), lies_so, is_argument, fresh)
