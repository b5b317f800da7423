"""Checks a block of calls for writes outside its buffers, and for results in memory where they must not lie.

These guards run on every block whose results are compared, timed or not, before the comparison. Where the results of a
CUDA graph lie is checked once, when it is recorded. Each docstring says what the guard proves and what not.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

import torch

from torchstone import operators
from torchstone.judge_process.block_results import BlockResults
from torchstone.protocol.tensor_places import same_steps


class GuardFinding(NamedTuple):
    """What a guard found."""

    reason: Literal["bounds", "aliasing"]
    message: str
    call: int | None = None
    """Index of the call in the block. None: not known."""


class BlockGuard(Protocol):
    """A check of a block's arguments and results. Returns what is wrong, or None."""

    def examine(self, block: BlockResults) -> GuardFinding | None: ...


class BandGuard:
    """Proves that something was written outside every argument.

    Random bytes lie before, between and behind the arguments of every call, and must still be there. Does not see
    writes that go further than a band, or that hit memory of the worker's own.
    """

    def examine(self, block: BlockResults) -> GuardFinding | None:
        layout = block.layout
        rows = block.arena.view(block.count, layout.pitch_bytes)
        changed = [(rows[:, start:end] != block.row[start:end]).any() for start, end in layout.bands]
        found = torch.stack(changed).tolist()
        if not any(found):
            return None
        band = found.index(True)
        where = f"behind tensor argument {band - 1}" if band else "before the first tensor argument"
        return GuardFinding("bounds", f"bytes {where} were changed, outside of all buffers")


class OwnMemoryGuard:
    """Proves that a result shares memory, although the operator promises a new tensor.

    A result must not lie in an argument. Two results of a block must not overlap: the next call would destroy the
    last result. No two elements of a result may share memory (an expanded tensor). Nor may a result lie in a kept
    result of an earlier block (:mod:`torchstone.judge_process.retained_results`).

    The guard looks at the addresses and strides that the worker reports. These may be false. So on the CPU the judge
    also overwrites the arguments and results of one call of each block. What changes with them is the same memory. Of
    results whose elements interleave only the beginning is compared.
    """

    def examine(self, block: BlockResults) -> GuardFinding | None:
        found = self._lies_in_argument(block) or self._results_overlap(block) or self._elements_overlap(block)
        if found is None and block.hidden_alias is not None:
            message = "a result shares memory with an argument; expected a new tensor"
            return GuardFinding("aliasing", message, block.hidden_alias)
        if found is None and block.call_on_kept_result is not None:
            message = "a result lies in the memory of an earlier result that is still in use; expected a new tensor"
            return GuardFinding("aliasing", message)
        return found

    def _lies_in_argument(self, block: BlockResults) -> GuardFinding | None:
        for call, position, address, _ in _fresh_results(block):
            offset = block.arena_offset(address)
            argument = None if offset is None else block.layout.argument_at(offset)
            if argument is not None:
                where = f"in the memory of tensor argument {argument}"
                return GuardFinding("aliasing", f"output {position} lies {where}; expected a new tensor", call)
        return None

    def _results_overlap(self, block: BlockResults) -> GuardFinding | None:
        ordered = sorted(_fresh_results(block), key=lambda result: result.address)
        for one, other in itertools.pairwise(ordered):
            if one.address == other.address or one.address + one.contiguous_bytes > other.address:
                outputs = f"outputs {one.position} and {other.position}" + (
                    "" if one.call == other.call else " of two calls"
                )
                return GuardFinding(
                    "aliasing", f"{outputs} lie in the same memory; expected a new tensor each", other.call
                )
        return None

    def _elements_overlap(self, block: BlockResults) -> GuardFinding | None:
        for call, places in enumerate(block.done.places):
            for position, (place, output) in enumerate(zip(places, block.layout.new_tensors, strict=True)):
                shape = block.shape_of(place, position)
                expanded = place.strides is not None and _overlap(shape, place.strides)
                if output.fresh and expanded and not _overlap(output.native.shape, output.native.stride()):
                    message = f"elements of output {position} share memory (strides {list(place.strides or ())})"
                    return GuardFinding("aliasing", f"{message}; expected a new tensor", call)
        return None


class ViewGuard:
    """Proves that a view operator returned something else than the view that it promises.

    The view is known from torch's own operator on the same arguments: begin and strides. Operators that return a view
    only where they can (``reshape``) promise nothing.
    """

    def examine(self, block: BlockResults) -> GuardFinding | None:
        layout = block.layout
        for call, places in enumerate(block.done.places if layout.views else ()):
            for position, (place, view) in enumerate(zip(places, layout.views, strict=True)):
                if view is None:
                    continue
                shape = layout.new_tensors[position].native.shape
                strides = operators.contiguous_strides(shape) if place.strides is None else place.strides
                begin = call * layout.pitch_bytes + view.offset_bytes
                if block.arena_offset(place.address) != begin or not same_steps(shape, strides, view.strides):
                    message = f"output {position} is no view of tensor argument {view.argument}; expected that view"
                    return GuardFinding("aliasing", message, call)
        return None


PLACE_GUARDS: tuple[BlockGuard, ...] = (OwnMemoryGuard(), ViewGuard())
"""The guards that check where results lie. A captured block runs them once, when it is recorded."""
BLOCK_GUARDS: tuple[BlockGuard, ...] = (BandGuard(), *PLACE_GUARDS)


class _Result(NamedTuple):
    call: int
    position: int
    address: int
    contiguous_bytes: int
    """0 if it is not contiguous: another result may lie in its gaps."""


def _fresh_results(block: BlockResults) -> list[_Result]:
    outputs = block.layout.new_tensors
    return [
        _Result(call, position, place.address, block.contiguous_bytes(place, position))
        for call, places in enumerate(block.done.places)
        for position, (place, output) in enumerate(zip(places, outputs, strict=True))
        if output.fresh and 0 not in block.shape_of(place, position)
    ]


def _overlap(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether two elements may share memory: a stride is smaller than the span of dimensions with smaller strides."""
    extent = 1
    for stride, size in sorted((stride, size) for size, stride in zip(shape, strides, strict=True) if size > 1):
        if stride < extent:
            return 0 not in shape
        extent = stride * (size - 1) + extent
    return False
