"""The expected result of a call: torch's own results, exact values with error bounds, and limits for screening."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from torchstone import operators, schema
from torchstone.calls.draw_arguments import DrawnCall
from torchstone.calls.reference_calls import Evaluation, ResultPosition, wide_dtype
from torchstone.judging.reference import bounds
from torchstone.judging.reference.float64 import FEW_ELEMENTS

if TYPE_CHECKING:
    from torchstone.judging.reference.case_reference import Reference


def states_format(case: schema.Case) -> bool:
    """Whether the case determines the strides of results, so that they are judged.

    True if an argument is a ``memory_format`` other than ``preserve_format``. True, too, without any ``memory_format``
    for an operator that lays out its result, such as ``contiguous``.
    """
    arguments = (*case.args, *case.kwargs.values())
    formats = [each.value for each in arguments if isinstance(each, schema.MemoryFormat)]
    return any(each != "preserve_format" for each in formats) or (
        operators.traits(case.operator).lays_out and not formats
    )


@dataclass(frozen=True, eq=False)
class ExpectedOutput:
    """One output of one call. Lists and tuples are flattened."""

    native: Any
    """torch's own tensor, or the plain value itself."""
    dtype: torch.dtype | None = None
    """None for plain values. Their shape and strides are None too."""
    shape: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None
    """Strides of torch's own result."""
    has_stated_strides: bool = False
    """Whether the strides are judged, see :func:`states_format`."""
    is_argument: int | None = None
    """The tensor argument that is returned (in-place, out=), by its position among the tensor arguments."""
    fresh: bool = False
    """Whether the operator promises new memory, shared with no argument and no other output."""


@dataclass(frozen=True, eq=False)
class ExpectedValues:
    """The expected values of one returned tensor or written storage."""

    native: torch.Tensor
    exact: torch.Tensor | None
    """The float64 or complex128 result; None if the operator does not run in it, or the dtype is not continuous."""
    bound: torch.Tensor | None
    """How far each element may lie from ``centre``; None: it must equal torch's."""
    spread: bounds.Spread | None = None
    """Limits for the errors of all elements together; None: only the bound of each element applies."""

    @property
    def centre(self) -> torch.Tensor:
        """The values around which the bound lies: the exact ones, or torch's own if there are none."""
        return self.exact if self.exact is not None else self.native.to(wide_dtype(self.native.dtype))


@dataclass(frozen=True, eq=False)
class Screen:
    """How close to torch's own a result must be to pass without a float64 evaluation.

    The allowed distance of an element is ``share`` times the sum of its magnitude and ``level``.
    """

    share: float
    level: torch.Tensor
    """A scalar on the device; NaN if only equality passes."""
    inside: torch.Tensor | None
    """For a written argument's storage, which elements belong to its view. Only these may differ at all."""
    rms: float
    """Largest root mean square of the distances, relative to the allowed distance of an element."""
    bias: float
    """Largest mean distance, in the same unit."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Calls that torch evaluated together: their results are stacked."""

    reference: Reference
    calls: tuple[DrawnCall, ...]
    evaluation: Evaluation


@dataclass(frozen=True)
class Expected:
    """The expected outputs and written arguments of one call."""

    batch: Batch
    index: int
    """Index of the call in the batch."""
    with_bounds: bool
    """Whether a result that is close to torch's own, but not equal, is compared in full instead of screened."""

    @property
    def call(self) -> DrawnCall:
        return self.batch.calls[self.index]

    @property
    def outputs(self) -> tuple[ExpectedOutput, ...]:
        """One for each output, lists and tuples flattened. Empty for an operator that declares no return."""
        leaves = self.batch.evaluation.results[self.index]
        return tuple(self._output(position, leaf) for position, leaf in enumerate(leaves))

    @property
    def new_tensors(self) -> list[torch.Tensor]:
        """torch's own returned tensors that share memory with no argument and no other output."""
        shared = self.batch.evaluation.shared
        tensors = [(place, output) for place, output in enumerate(self.outputs) if output.dtype is not None]
        return [output.native for place, output in tensors if output.is_argument is None and place not in shared]

    @property
    def inputs_after(self) -> list[torch.Tensor]:
        """The storage of every tensor argument after torch's own call. Those that are only read are as drawn."""
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
        """Expected values and bounds of each returned tensor and written storage. Takes several float64 evaluations.

        ``closely``: take slopes from more probes. For small calls, because few probes may be wrong by chance.
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
        strides_are_stated = states_format(self.call.case)
        return ExpectedOutput(
            leaf, leaf.dtype, tuple(leaf.shape), tuple(leaf.stride()), strides_are_stated, is_argument, fresh
        )
