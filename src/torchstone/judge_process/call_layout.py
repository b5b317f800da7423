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
_BAND_BYTES = 512
"""Between any two buffers, before the first and behind the last."""


class View(NamedTuple):
    """Where a result that is a view of an argument lies within a row, and how."""

    offset_bytes: int
    strides: tuple[int, ...]
    argument: int


class CallLayout:
    """Where each tensor argument of a call lies. Calls follow one another at a fixed pitch, each in a *row*."""

    def __init__(self, case: schema.Case, expected: Expected) -> None:
        self._end = _BAND_BYTES
        self.bands: list[tuple[int, int]] = [(0, _BAND_BYTES)]
        """Where in a row nothing lies: bytes that no kernel may change."""
        returns = operators.resolve(case.operator)._schema.returns
        self._is_view = any(item.alias_info is not None for item in returns)
        recipes = schema.tensors_of(case)
        self._inputs = [
            (self._place(operators.storage_extent(recipe), operators.torch_dtype(recipe.dtype)), recipe)
            for recipe in recipes
        ]
        self.outputs = expected.outputs
        self.new_tensors = [output for output in self.outputs if _is_new_tensor(output)]
        """Those of the outputs that lie somewhere in the candidate's memory."""
        self._new_bytes: int = sum(output.native.nbytes for output in self.new_tensors)
        self.pitch_bytes = self._end
        overload = operators.resolve(case.operator)
        self.is_dynamic = torch.Tag.dynamic_output_shape in overload.tags
        """Whether the shapes of the results depend on the values."""
        self.largest_bytes = self._largest_bytes(recipes)
        """What one result may take at most."""
        self.views = self._find_views(expected.call) if operators.is_view(case.operator) else []
        """Where each of the new tensors must lie, if the operator promises views of its arguments."""

    def _largest_bytes(self, recipes: Sequence[schema.Tensor]) -> int:
        """Bytes that results of unknown shape may need.

        They hold at most a few numbers for each element of the arguments (expanded together), and for each dimension.
        """
        known = max((output.native.nbytes for output in self.new_tensors), default=0)
        if not self.is_dynamic:
            return known
        numbers = sum(8 * (len(recipe.shape) + 1) * operators.storage_extent(recipe) for recipe in recipes)
        together = _expanded_together([recipe.shape for recipe in recipes])
        return max(known, numbers + _ALIGNMENT, 8 * (len(together) + 1) * math.prod(together))

    def _find_views(self, call: DrawnCall) -> list[View | None]:
        """What torch's own operator makes of these arguments."""
        result = operators.resolve(call.case.operator)(*call.args, **call.kwargs)
        return [self._view(leaf, call) for leaf in operators.flatten_outputs(result)]

    def _view(self, leaf: torch.Tensor, call: DrawnCall) -> View | None:
        for argument, ((place, _), tensor) in enumerate(zip(self._inputs, call.tensors, strict=True)):
            offset = leaf.data_ptr() - tensor.storage.data_ptr()
            if leaf.numel() and 0 <= offset < tensor.storage.nbytes:
                return View(place[0] + offset, leaf.stride(), argument)
        return None

    def _place(self, elements: int, dtype: torch.dtype) -> tuple[int, int, torch.dtype]:
        offset = self._end
        used = offset + elements * dtype.itemsize
        self._end = -(-used // _ALIGNMENT) * _ALIGNMENT + _BAND_BYTES
        self.bands.append((used, self._end))
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
        """For each tensor argument ``(count, elements)``: its storages in the first rows, as they lie there."""
        return [
            memory.view(dtype).as_strided(
                (count, elements), (self.pitch_bytes // dtype.itemsize, 1), offset // dtype.itemsize
            )
            if elements
            else torch.empty((count, 0), dtype=dtype, device=memory.device)
            for (offset, elements, dtype), _ in self._inputs
        ]

    def stacked_argument(self, storages: torch.Tensor, position: int) -> torch.Tensor:
        """The view that calls have of a tensor argument, over its stacked storages."""
        return batched_view(storages, self._inputs[position][1])

    def argument_at(self, offset: int) -> int | None:
        """The tensor argument that lies at this offset of the arena."""
        within = offset % self.pitch_bytes
        for position, ((begin, elements, dtype), _) in enumerate(self._inputs):
            if begin <= within < begin + elements * dtype.itemsize:
                return position
        return None

    def outputs_in(self, memory: torch.Tensor, index: int, new: Sequence[Any], plain: Sequence[Any]) -> list[Any]:
        """A call's returned leaves: arguments from a copy of the arena, the others as they were read and told."""
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
        """Begin and size in bytes, within a row, of arguments that a call writes and returns."""
        positions = {output.is_argument for output in self.outputs if output.is_argument is not None}
        places = [self._inputs[position][0] for position in sorted(positions)]
        return [(offset, elements * dtype.itemsize) for offset, elements, dtype in places if elements]

    @property
    def written_bytes(self) -> int:
        """Bytes that a call must write: its fresh results. Views and arguments that are returned count nothing."""
        return 0 if self._is_view else self._new_bytes

    @property
    def bytes_per_call(self) -> int:
        """Bytes of all tensors of a call, without padding."""
        inputs = sum(elements * dtype.itemsize for (_, elements, dtype), _ in self._inputs)
        return inputs + self._new_bytes

    @property
    def footprint_bytes(self) -> int:
        """What one call takes of the memory that is set aside for a block: its arguments and its results."""
        return self.pitch_bytes + self._new_bytes


def _is_new_tensor(output: Any) -> bool:
    return output.is_argument is None and isinstance(output.native, torch.Tensor)


def _dtype_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _slice(memory: torch.Tensor, base: int, place: tuple[int, int, torch.dtype]) -> torch.Tensor:
    offset, elements, dtype = place
    start = base + offset
    return memory[start : start + elements * dtype.itemsize].view(dtype)


def _expanded_together(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """As operators that work element by element do it; nothing for shapes that do not fit."""
    try:
        return np.broadcast_shapes(*shapes)  # torch's own imports a library for algebra, which takes a second
    except ValueError:
        return (0,)
