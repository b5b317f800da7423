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
_MOST_BYTES = 1 << 62
"""Of a tensor as it would be without dimensions of size 0: torch multiplies the others even where there are such."""


ResultStrides = tuple[int, tuple[int, ...] | None]
"""Which new tensor of a call, and its strides; None: contiguous."""


class BlockResults:
    """What a block of calls left behind: arguments and results, once the judge has copied them into its own memory."""

    def __init__(
        self, layout: CallLayout, done: Done, count: int, arena: torch.Tensor, arena_address: int, row: torch.Tensor
    ) -> None:
        self.layout = layout
        self._arena_address = arena_address
        self.done = done
        self.count = count
        self.arena = arena
        """The arguments, and the bands around them, as the calls left them."""
        self.row = row
        """What was in each row before the arguments were written to it."""
        self.elapsed_ns = 0
        self.completing_ns = 0
        """How long it took until the results were in memory: nobody's clock but the judge's has that."""
        self.hidden_alias: int | None = None
        """A call whose arguments changed when its results were overwritten, wherever it said that they lie."""
        self.on_kept: int | None = None
        """A call with a result in the memory of an earlier one that its owner still has."""
        _check_counts(done, count, len(layout.new_tensors))
        self._new: list[list[Any]] = [[None] * len(layout.new_tensors) for _ in range(count)]
        self.spans: list[Span] = []
        """What is to be read from the worker: results with elements that do not lie in the arena."""
        self._read: list[tuple[int, int]] = []
        self._in_arena: list[tuple[int, int, slice]] = []
        self.copies: Iterable[torch.Tensor] = ()
        self._bytes: list[torch.Tensor] = []
        for index, places in enumerate(done.places):
            for position, place in enumerate(places):
                self._note(index, position, place)

    @property
    def claimed_ns(self) -> int:
        """What the worker says that the calls took, and what they left to be done."""
        return self.done.claimed_ns + self.completing_ns

    @property
    def lying(self) -> set[ResultStrides]:
        """How results lie, each way once."""
        return {
            (position, None if place.strides is None else tuple(place.strides))
            for places in self.done.places
            for position, place in enumerate(places)
        }

    def _note(self, index: int, position: int, place: ResultAddress) -> None:
        native = self.layout.new_tensors[position].native
        shape = self.shape_of(place, position)
        size_bytes = _span_bytes(place, shape, native.dtype)
        offset = self.arena_offset(place.address)
        if size_bytes == 0:
            self._new[index][position] = _empty(native, shape)
        elif offset is not None:
            if offset + size_bytes > self.arena.numel():
                raise BadReplyError("a result that begins in an argument and ends nowhere")
            self._in_arena.append((index, position, slice(offset, offset + size_bytes)))
        elif size_bytes > MOST_SPARSE * self._limit_bytes(shape, native):
            raise BadReplyError("a result that is scattered over more memory than is read")
        else:
            self.spans.append(Span(place.address, size_bytes))
            self._read.append((index, position))

    def shape_of(self, place: ResultAddress, position: int) -> Sequence[int]:
        """The shape of a result, told by the worker where it depends on the values."""
        declared: Sequence[int] = self.layout.new_tensors[position].native.shape
        if not self.layout.is_dynamic or place.shape is None:
            return declared
        itemsize = self.layout.new_tensors[position].native.dtype.itemsize
        largest = math.prod(max(1, size) for size in place.shape) * itemsize
        if len(place.shape) > _MOST_DIMENSIONS or any(size < 0 for size in place.shape) or largest > _MOST_BYTES:
            raise BadReplyError("a shape that no tensor has")
        return place.shape

    def contiguous_bytes(self, place: ResultAddress, position: int) -> int:
        """Bytes of a result that no other can share; zero where its elements leave room for others in between."""
        itemsize = self.layout.new_tensors[position].native.dtype.itemsize
        return math.prod(self.shape_of(place, position)) * itemsize if place.strides is None else 0

    def _limit_bytes(self, shape: Sequence[int], native: torch.Tensor) -> int:
        size_bytes = math.prod(shape) * native.dtype.itemsize
        if size_bytes > self.layout.largest_bytes:
            raise BadReplyError(f"a result of {size_bytes} bytes, more than the arguments allow for")
        return size_bytes

    def read_of(self, index: int) -> tuple[list[Span], list[torch.Tensor]]:
        """The spans that results of one call were read from, and the bytes that were found there."""
        mine = [place for place, (call, _) in enumerate(self._read) if call == index]
        return [self.spans[place] for place in mine], [self._bytes[place] for place in mine]

    def own_spans_of(self, index: int) -> list[Span]:
        """Where the results of one call lie; nothing, if not all of them are memory of their own without gaps."""
        plain = all(
            output.fresh and place.strides is None
            for place, output in zip(self.done.places[index], self.layout.new_tensors, strict=True)
        )
        return [span for span, (call, _) in zip(self.spans, self._read, strict=True) if call == index and plain]

    def call_of(self, span: int) -> int:
        """Whose result a span is."""
        return self._read[span][0]

    def unpack(self) -> None:
        """See what was copied as tensors. Apart from copying, which is on the clock where there is a device."""
        self._bytes = list(self.copies)
        there = [(index, position, self.arena[where].clone()) for index, position, where in self._in_arena]
        read = [(*which, copy) for which, copy in zip(self._read, self._bytes, strict=True)]
        for index, position, copy in there + read:
            place, native = self.done.places[index][position], self.layout.new_tensors[position].native
            shape = self.shape_of(place, position)
            self._new[index][position] = _seen_as(copy, place, shape, native.dtype)

    def outputs(self, index: int) -> list[Any]:
        """The leaves that a call returned."""
        told = self.done.plain_values[index] if self.done.plain_values else ()
        plain = [received_plain(value) for value in told]
        return self.layout.outputs_in(self.arena, index, self._new[index], plain)

    def inputs_after(self, index: int) -> list[torch.Tensor]:
        """The storages of a call's tensor arguments as they were when it was over."""
        return self.layout.inputs_in(self.arena, index)

    def arena_offset(self, address: int) -> int | None:
        """Where in the arena an address of the worker's is."""
        offset = address - self._arena_address
        return offset if 0 <= offset < self.arena.numel() else None


def _check_counts(done: Done, calls: int, new_tensors: int) -> None:
    """A reply speaks of the calls that were asked for, and of no others."""
    if done.odd_call is not None:
        if not 0 <= done.odd_call < calls or done.places:
            raise BadReplyError("a reply about calls that were not asked for")
        return
    if len(done.places) != calls or any(len(places) != new_tensors for places in done.places):
        raise BadReplyError("a reply about results that were not asked for")
    if len(done.plain_values) not in (0, calls):
        raise BadReplyError("a reply about calls that were not asked for")


def _span_bytes(place: ResultAddress, shape: Sequence[int], dtype: torch.dtype) -> int:
    """Bytes from the first element of a result to its last. What strides it names is checked even if it has none."""
    strides = place.strides
    if strides is not None and (len(strides) != len(shape) or any(stride < 0 for stride in strides)):
        raise BadReplyError("strides that no tensor of this shape has")
    elements = math.prod(shape)
    if elements == 0 or strides is None:
        return elements * dtype.itemsize
    return span_elements(shape, strides) * dtype.itemsize


def _empty(native: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    try:
        return native.new_empty(tuple(shape))
    except (RuntimeError, TypeError, ValueError, OverflowError) as error:  # it allocates nothing: the reply's doing
        raise BadReplyError("a shape that no tensor has") from error


def _seen_as(copy: torch.Tensor, place: ResultAddress, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """The tensor in a copy of its bytes."""
    if copy.storage_offset() % dtype.itemsize:
        copy = copy.clone()
    flat = copy.view(dtype)
    try:  # nothing is allocated or read: what torch does not like is what the reply said
        if place.strides is None:
            return flat.view(tuple(shape))
        return flat.as_strided(tuple(shape), place.strides, flat.storage_offset())
    except (RuntimeError, TypeError, ValueError, OverflowError) as error:
        raise BadReplyError("a result that does not lie as the reply says") from error
