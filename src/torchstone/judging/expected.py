"""What calls must give: the noun between the reference, which makes it, and the agreement, which uses it.

Calls of one case are evaluated in batches, each result stacked along a first dimension, so that hundreds of small
calls are compared by a handful of tensor operations. :class:`Expected` is one call of such a batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from torchstone import operators
from torchstone.judging.inputs import DrawnCall


@dataclass(frozen=True)
class Values:
    """What one tensor must hold, for every call of a batch; each tensor is ``(calls, *shape)``."""

    native: torch.Tensor
    """torch's own result in the dtype of the case."""
    exact: torch.Tensor | None
    """In float64 or complex128; None where the operator does not run in it, or the values are not continuous."""
    bound: torch.Tensor | None
    """How far each element may lie from ``centre``; None: bit for bit as torch's."""

    @property
    def centre(self) -> torch.Tensor:
        """What the bound is around."""
        if self.exact is not None:
            return self.exact
        return self.native.to(torch.complex128 if self.native.dtype.is_complex else torch.float64)

    def of_calls(self, start: int, stop: int) -> Values:
        """The part for some of the calls."""
        rows = slice(start, stop)
        exact = None if self.exact is None else self.exact[rows]
        return Values(self.native[rows], exact, None if self.bound is None else self.bound[rows])


@dataclass(frozen=True)
class TensorLeaf:
    """A returned tensor."""

    values: Values
    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    is_argument: int | None


@dataclass(frozen=True)
class PlainLeaf:
    """A returned number, flag or None; one value per call."""

    values: tuple[Any, ...]


Leaf = TensorLeaf | PlainLeaf


@dataclass(frozen=True)
class ExpectedBatch:
    """What several calls of one case must give and leave behind."""

    calls: tuple[DrawnCall, ...]
    leaves: tuple[Leaf, ...]
    mutated: dict[int, Values]
    """Storage-level content of each tensor argument that the operator writes to, after the call."""


@dataclass(frozen=True)
class ExpectedOutput:
    """One returned leaf of one call."""

    native: Any
    """A tensor, or the plain value itself."""
    exact: torch.Tensor | None = None
    bound: torch.Tensor | None = None
    """None: equality."""
    is_argument: int | None = None
    """The tensor argument that is returned (in-place, out=)."""
    dtype: torch.dtype | None = None
    """None for plain values, as are shape and strides."""
    shape: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None
    """torch's own. Reported; agreement does not depend on them yet."""


@dataclass(frozen=True)
class ExpectedTensor:
    """The storage of one mutated argument after one call."""

    native: torch.Tensor
    exact: torch.Tensor | None
    bound: torch.Tensor | None
    """0 outside the argument's view: what lies between its elements must stay as it was."""


@dataclass(frozen=True)
class Expected:
    """What one call must give and leave behind."""

    batch: ExpectedBatch
    index: int

    @property
    def call(self) -> DrawnCall:
        return self.batch.calls[self.index]

    @property
    def outputs(self) -> tuple[ExpectedOutput, ...]:
        """One per returned leaf, lists and tuples opened. Empty for an operator that declares no return."""
        return tuple(self._output(leaf) for leaf in self.batch.leaves)

    @property
    def mutated(self) -> dict[int, ExpectedTensor]:
        """By position among the tensor arguments; every other argument must be bitwise unchanged."""
        return {position: ExpectedTensor(*self._row(values)) for position, values in self.batch.mutated.items()}

    @property
    def inputs_after(self) -> list[torch.Tensor]:
        """The storages as torch itself would leave them."""
        after = self.mutated
        return [
            after[position].native if position in after else tensor.storage
            for position, tensor in enumerate(self.call.tensors)
        ]

    def _output(self, leaf: Leaf) -> ExpectedOutput:
        if isinstance(leaf, PlainLeaf):
            return ExpectedOutput(leaf.values[self.index])
        native, exact, bound = self._row(leaf.values)
        return ExpectedOutput(native, exact, bound, leaf.is_argument, leaf.dtype, leaf.shape, leaf.strides)

    def _row(self, values: Values) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        row = values.of_calls(self.index, self.index + 1)
        return row.native[0], None if row.exact is None else row.exact[0], None if row.bound is None else row.bound[0]


def inside_view(call: DrawnCall, position: int) -> torch.Tensor:
    """Which elements of an argument's storage its view covers."""
    tensor = call.tensors[position]
    covered = torch.zeros(tensor.storage.shape, dtype=torch.bool, device=tensor.storage.device)
    operators.view_of(covered, tensor.recipe).fill_(True)
    return covered
