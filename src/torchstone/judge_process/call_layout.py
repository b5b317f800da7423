"""Lays out the arguments of a block's calls in shared memory, and describes what each call must return."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from torchstone import operators, schema
from torchstone.judging import DrawnCall, Expected, batched_view
from torchstone.protocol.tensor_places import Output, Placement

_ALIGNMENT = 512
"""Bytes: every argument begins at a multiple of this in its row."""
_BAND_BYTES = 512
"""Fewest bytes of a band: between two arguments of a row, before the first and behind the last."""


class View(NamedTuple):
    """A result that must be a view of an argument: its offset in the row, its strides, and which argument."""

    offset_bytes: int
    strides: tuple[int, ...]
    argument: int


class CallLayout:
    """Where each tensor argument of a call lies. Calls follow one another at a fixed pitch, each in a *row*."""

    def __init__(self, case: schema.Case, expected: Expected) -> None:
        self._end_bytes = _BAND_BYTES
        self.bands: list[tuple[int, int]] = [(0, _BAND_BYTES)]
        """Begin and end of the parts of a row that belong to no argument. No kernel may change them."""
        returns = operators.resolve(case.operator)._schema.returns
        self._is_view = any(item.alias_info is not None for item in returns)
        recipes = schema.tensors_of(case)
        self._inputs = [
            (self._reserve(operators.storage_extent(recipe), operators.torch_dtype(recipe.dtype)), recipe)
            for recipe in recipes
        ]
        self.outputs = expected.outputs
        self.new_tensors = [output for output in self.outputs if _is_new_tensor(output)]
        """The outputs that are tensors but not arguments: the reply must say where they lie."""
        self._new_bytes: int = sum(output.native.nbytes for output in self.new_tensors)
        self.pitch_bytes = self._end_bytes
        overload = operators.resolve(case.operator)
        self.is_dynamic = torch.Tag.dynamic_output_shape in overload.tags
        """Whether the shapes of the results depend on values (``nonzero``, for example)."""
        self.largest_bytes = self._largest_bytes(recipes)
        """Most bytes of one result."""
        self.views = self._find_views(expected.call) if operators.is_view(case.operator) else []
        """For each new tensor the view that it must be, if the operator promises views of its arguments."""

    def _largest_bytes(self, recipes: Sequence[schema.Tensor]) -> int:
        """Most bytes of one result; an upper limit if the shapes depend on values.

        Such a result has at most ``dimensions + 1`` numbers of 8 bytes for each element of the arguments, or of their
        broadcast shape.
        """
        known = max((output.native.nbytes for output in self.new_tensors), default=0)
        if not self.is_dynamic:
            return known
        numbers = sum(8 * (len(recipe.shape) + 1) * operators.storage_extent(recipe) for recipe in recipes)
        broadcast = _broadcast_shape([recipe.shape for recipe in recipes])
        return max(known, numbers + _ALIGNMENT, 8 * (len(broadcast) + 1) * math.prod(broadcast))

    def _find_views(self, call: DrawnCall) -> list[View | None]:
        """The views that torch's own operator makes of these arguments."""
        result = operators.resolve(call.case.operator)(*call.args, **call.kwargs)
        return [self._view(leaf, call) for leaf in operators.flatten_outputs(result)]

    def _view(self, leaf: torch.Tensor, call: DrawnCall) -> View | None:
        for argument, ((place, _), tensor) in enumerate(zip(self._inputs, call.tensors, strict=True)):
            offset = leaf.data_ptr() - tensor.storage.data_ptr()
            if leaf.numel() and 0 <= offset < tensor.storage.nbytes:
                return View(place[0] + offset, leaf.stride(), argument)
        return None

    def _reserve(self, elements: int, dtype: torch.dtype) -> tuple[int, int, torch.dtype]:
        """Reserve the next place in the row for an argument, with a band behind it."""
        offset = self._end_bytes
        used = offset + elements * dtype.itemsize
        self._end_bytes = -(-used // _ALIGNMENT) * _ALIGNMENT + _BAND_BYTES
        self.bands.append((used, self._end_bytes))
        return offset, elements, dtype

    def input_placements(self) -> tuple[Placement, ...]:
        return tuple(self._placement(place) for place, _ in self._inputs)

    def declared_outputs(self) -> tuple[Output, ...]:
        return tuple(
            Output(
                _dtype_name(output.native) if isinstance(output.native, torch.Tensor) else None,
                self._declared_shape(output.native),
                output.is_argument,
                output.fresh,
            )
            for output in self.outputs
        )

    def _declared_shape(self, native: Any) -> tuple[int, ...] | None:
        if not isinstance(native, torch.Tensor):
            return ()
        return None if self.is_dynamic else tuple(native.shape)

    def _placement(self, place: tuple[int, int, torch.dtype]) -> Placement:
        offset, elements, dtype = place
        return Placement(offset, self.pitch_bytes, elements, str(dtype).removeprefix("torch."))

    def inputs_in(self, memory: torch.Tensor, index: int) -> list[torch.Tensor]:
        """The flat storages of a call's tensor arguments within a copy of the arena."""
        return [_slice(memory, index * self.pitch_bytes, place) for place, _ in self._inputs]

    def stacked_inputs_in(self, memory: torch.Tensor, count: int) -> list[torch.Tensor]:
        """For each tensor argument a view ``(count, elements)`` of its storages in the first ``count`` rows."""
        return [
            memory.view(dtype).as_strided(
                (count, elements), (self.pitch_bytes // dtype.itemsize, 1), offset // dtype.itemsize
            )
            if elements
            else torch.empty((count, 0), dtype=dtype, device=memory.device)
            for (offset, elements, dtype), _ in self._inputs
        ]

    def stacked_argument(self, storages: torch.Tensor, position: int) -> torch.Tensor:
        """One tensor argument of all calls: the calls' view of it, over its stacked storages."""
        return batched_view(storages, self._inputs[position][1])

    def argument_at(self, offset: int) -> int | None:
        """The tensor argument that lies at this offset of the arena; None: a band."""
        within = offset % self.pitch_bytes
        for position, ((begin, elements, dtype), _) in enumerate(self._inputs):
            if begin <= within < begin + elements * dtype.itemsize:
                return position
        return None

    def outputs_in(self, memory: torch.Tensor, index: int, new: Sequence[Any], plain: Sequence[Any]) -> list[Any]:
        """A call's returned leaves: arguments from a copy of the arena, tensors of ``new``, numbers of ``plain``."""
        tensors, values = iter(new), iter(plain)
        leaves: list[Any] = []
        for output in self.outputs:
            if output.is_argument is not None:
                argument, recipe = self._inputs[output.is_argument]
                leaves.append(operators.view_of(_slice(memory, index * self.pitch_bytes, argument), recipe))
            else:
                leaves.append(next(tensors) if _is_new_tensor(output) else next(values, None))
        return leaves

    def returned_arguments(self) -> list[tuple[int, int]]:
        """Offset in the row and size in bytes of the arguments that a call writes and returns."""
        positions = {output.is_argument for output in self.outputs if output.is_argument is not None}
        places = [self._inputs[position][0] for position in sorted(positions)]
        return [(offset, elements * dtype.itemsize) for offset, elements, dtype in places if elements]

    @property
    def written_bytes(self) -> int:
        """Bytes that a call must write: its new tensors. Views and returned arguments do not count."""
        return 0 if self._is_view else self._new_bytes

    @property
    def bytes_per_call(self) -> int:
        """Bytes of all tensors of a call, without padding."""
        inputs = sum(elements * dtype.itemsize for (_, elements, dtype), _ in self._inputs)
        return inputs + self._new_bytes

    @property
    def footprint_bytes(self) -> int:
        """Bytes of one call in a block: its row of arguments and bands, and its results."""
        return self.pitch_bytes + self._new_bytes


def _is_new_tensor(output: Any) -> bool:
    return output.is_argument is None and isinstance(output.native, torch.Tensor)


def _dtype_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _slice(memory: torch.Tensor, base: int, place: tuple[int, int, torch.dtype]) -> torch.Tensor:
    offset, elements, dtype = place
    start = base + offset
    return memory[start : start + elements * dtype.itemsize].view(dtype)


def _broadcast_shape(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The broadcast shape of these shapes; ``(0,)`` if they cannot be broadcast."""
    try:
        return np.broadcast_shapes(*shapes)  # torch.broadcast_shapes imports an algebra library: a second
    except ValueError:
        return (0,)
