"""Results of a block of calls: checks the worker's reply, lists the memory to read, and views the copies as tensors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from torchstone.judge_process.call_layout import CallLayout
from torchstone.protocol.plain_values import received_plain
from torchstone.protocol.replies import Done
from torchstone.protocol.tensor_places import MOST_SPARSE, ResultAddress, span_elements
from torchstone.supervisor.result_reading import Span
from torchstone.supervisor.worker_failures import BadReplyError

_MOST_DIMENSIONS = 64
"""Most dimensions of a result."""
_MOST_SHAPE_BYTES = 1 << 62
"""Most bytes of a result, sizes of 0 counted as 1: torch multiplies the other sizes even if one of them is 0."""


ResultStrides = tuple[int, tuple[int, ...] | None]
"""Position of a tensor among the new tensors of a call, and its strides (None: contiguous)."""


class BlockResults:
    """Arguments and results of a block of calls, copied into the judge's own memory."""

    def __init__(
        self, layout: CallLayout, done: Done, count: int, arena: torch.Tensor, arena_address: int, row: torch.Tensor
    ) -> None:
        self.layout = layout
        self._arena_address = arena_address
        self.done = done
        self.count = count
        self.arena = arena
        """The arguments, and the bands around them, after the calls."""
        self.row = row
        """The random bytes of every row before arguments were written to it. The bands must still hold them."""
        self.elapsed_ns = 0
        self.completing_ns = 0
        """Time in which the system provided result pages that were not present. Only the judge's clock measures it."""
        self.hidden_alias: int | None = None
        """A call whose arguments and results share memory, whatever addresses the worker reported. None: not seen."""
        self.call_on_kept_result: int | None = None
        """A call with a result in the memory of a kept result of an earlier block. None: there is none."""
        _check_counts(done, count, len(layout.new_tensors))
        self._new_tensors: list[list[Any]] = [[None] * len(layout.new_tensors) for _ in range(count)]
        self.spans: list[Span] = []
        """The memory to read from the worker: results with elements that do not lie in the arena."""
        self._calls_of_spans: list[tuple[int, int]] = []
        """Call and position of each span."""
        self._in_arena: list[tuple[int, int, slice]] = []
        self.copies: Iterable[torch.Tensor] = ()
        self._copied_bytes: list[torch.Tensor] = []
        for index, places in enumerate(done.places):
            for position, place in enumerate(places):
                self._add_result(index, position, place)

    @property
    def claimed_ns(self) -> int:
        """The time of the calls by the worker's clock, plus :attr:`completing_ns`."""
        return self.done.claimed_ns + self.completing_ns

    @property
    def result_strides(self) -> set[ResultStrides]:
        """The distinct strides of the block's results."""
        return {
            (position, None if place.strides is None else tuple(place.strides))
            for places in self.done.places
            for position, place in enumerate(places)
        }

    def _add_result(self, index: int, position: int, place: ResultAddress) -> None:
        """Decide where a result's bytes come from: it has none, the arena, or the worker's memory."""
        native = self.layout.new_tensors[position].native
        shape = self.shape_of(place, position)
        size_bytes = _span_bytes(place, shape, native.dtype)
        offset = self.arena_offset(place.address)
        if size_bytes == 0:
            self._new_tensors[index][position] = _empty(native, shape)
        elif offset is not None:
            if offset + size_bytes > self.arena.numel():
                raise BadReplyError("the reply has a result that begins in the arguments' memory and ends outside it")
            self._in_arena.append((index, position, slice(offset, offset + size_bytes)))
        elif size_bytes > MOST_SPARSE * self._checked_bytes(shape, native):
            raise BadReplyError("the reply has a result that is scattered over more memory than the judge reads")
        else:
            self.spans.append(Span(place.address, size_bytes))
            self._calls_of_spans.append((index, position))

    def shape_of(self, place: ResultAddress, position: int) -> Sequence[int]:
        """The shape of a result: the declared one, or that of the reply if it depends on the values."""
        declared: Sequence[int] = self.layout.new_tensors[position].native.shape
        if not self.layout.is_dynamic or place.shape is None:
            return declared
        itemsize = self.layout.new_tensors[position].native.dtype.itemsize
        largest = math.prod(max(1, size) for size in place.shape) * itemsize
        if len(place.shape) > _MOST_DIMENSIONS or any(size < 0 for size in place.shape) or largest > _MOST_SHAPE_BYTES:
            raise BadReplyError("the reply has a shape that no tensor can have")
        return place.shape

    def contiguous_bytes(self, place: ResultAddress, position: int) -> int:
        """Bytes of a contiguous result; 0 for others, because another result may lie in their gaps."""
        itemsize = self.layout.new_tensors[position].native.dtype.itemsize
        return math.prod(self.shape_of(place, position)) * itemsize if place.strides is None else 0

    def _checked_bytes(self, shape: Sequence[int], native: torch.Tensor) -> int:
        """Bytes of a result's elements. Raises BadReplyError if they are more than the arguments allow for."""
        size_bytes = math.prod(shape) * native.dtype.itemsize
        if size_bytes > self.layout.largest_bytes:
            raise BadReplyError(f"the reply has a result of {size_bytes} bytes, more than these arguments can give")
        return size_bytes

    def read_of(self, index: int) -> tuple[list[Span], list[torch.Tensor]]:
        """The spans of one call's results, and the bytes that were read there."""
        own = [place for place, (call, _) in enumerate(self._calls_of_spans) if call == index]
        return [self.spans[place] for place in own], [self._copied_bytes[place] for place in own]

    def own_spans_of(self, index: int) -> list[Span]:
        """The spans of one call's results; empty unless all of them are new tensors and contiguous."""
        plain = all(
            output.fresh and place.strides is None
            for place, output in zip(self.done.places[index], self.layout.new_tensors, strict=True)
        )
        return [
            span for span, (call, _) in zip(self.spans, self._calls_of_spans, strict=True) if call == index and plain
        ]

    def call_of(self, span: int) -> int:
        """The call whose result lies in a span."""
        return self._calls_of_spans[span][0]

    def unpack(self) -> None:
        """Make tensors of the copied bytes. Separate from copying, which is timed on a device."""
        self._copied_bytes = list(self.copies)
        in_arena = [(index, position, self.arena[where].clone()) for index, position, where in self._in_arena]
        outside = [(*which, copy) for which, copy in zip(self._calls_of_spans, self._copied_bytes, strict=True)]
        for index, position, copy in in_arena + outside:
            place, native = self.done.places[index][position], self.layout.new_tensors[position].native
            shape = self.shape_of(place, position)
            self._new_tensors[index][position] = _as_tensor(copy, place, shape, native.dtype)

    def outputs(self, index: int) -> list[Any]:
        """The leaves that a call returned."""
        reported = self.done.plain_values[index] if self.done.plain_values else ()
        plain = [received_plain(value) for value in reported]
        return self.layout.outputs_in(self.arena, index, self._new_tensors[index], plain)

    def inputs_after(self, index: int) -> list[torch.Tensor]:
        """The storages of a call's tensor arguments after the call."""
        return self.layout.inputs_in(self.arena, index)

    def arena_offset(self, address: int) -> int | None:
        """The offset in the arena of an address of the worker; None: it lies elsewhere."""
        offset = address - self._arena_address
        return offset if 0 <= offset < self.arena.numel() else None


def _check_counts(done: Done, calls: int, new_tensors: int) -> None:
    """Raise BadReplyError unless the reply describes the requested calls, and no others."""
    if done.odd_call is not None:
        if not 0 <= done.odd_call < calls or done.places:
            raise BadReplyError("the reply describes other calls than the judge requested")
        return
    if len(done.places) != calls or any(len(places) != new_tensors for places in done.places):
        raise BadReplyError("the reply describes other results than the judge requested")
    if len(done.plain_values) not in (0, calls):
        raise BadReplyError("the reply describes other calls than the judge requested")


def _span_bytes(place: ResultAddress, shape: Sequence[int], dtype: torch.dtype) -> int:
    """Bytes from the first element of a result to its last. Checks the strides, those of an empty result as well."""
    strides = place.strides
    if strides is not None and (len(strides) != len(shape) or any(stride < 0 for stride in strides)):
        raise BadReplyError("the reply has strides that no tensor of this shape can have")
    elements = math.prod(shape)
    if elements == 0 or strides is None:
        return elements * dtype.itemsize
    return span_elements(shape, strides) * dtype.itemsize


def _empty(native: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    try:
        return native.new_empty(tuple(shape))
    except (RuntimeError, TypeError, ValueError, OverflowError) as error:  # nothing is allocated: the shape is wrong
        raise BadReplyError("the reply has a shape that no tensor can have") from error


def _as_tensor(copy: torch.Tensor, place: ResultAddress, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """A result as a tensor over the copy of its bytes."""
    if copy.storage_offset() % dtype.itemsize:
        copy = copy.clone()
    flat = copy.view(dtype)
    try:  # nothing is allocated or read: an error means that the reply is wrong
        if place.strides is None:
            return flat.view(tuple(shape))
        return flat.as_strided(tuple(shape), place.strides, flat.storage_offset())
    except (RuntimeError, TypeError, ValueError, OverflowError) as error:
        raise BadReplyError("the reply has a shape and strides that do not fit the memory of the result") from error
