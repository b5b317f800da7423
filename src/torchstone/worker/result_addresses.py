"""Tells the judge where the results of calls lie in the worker's memory, or that a result has the wrong structure."""

from __future__ import annotations

from typing import Any

import torch

from torchstone import operators
from torchstone.protocol.plain_values import sent_plain
from torchstone.protocol.replies import Done, Leaf, OtherLeaf, PlainLeaf, TensorLeaf
from torchstone.protocol.shared_memory import Memory, OpenedDeviceMemory
from torchstone.protocol.tensor_places import MOST_SPARSE, Output, ResultAddress, Segment, same_steps, span_elements

OutputDtypes = list[tuple[Output, torch.dtype | None]]
"""What the operator returns, with the dtype of each tensor; None for plain values."""
Binding = tuple[int, tuple[int, ...], tuple[int, ...], torch.dtype]
"""Address, shape, strides and dtype of an argument when it was bound: a call may change those of its tensor."""

_PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter)


class ResultLocator:
    """Checks the structure of results, and reports where they lie."""

    def __init__(
        self,
        outputs: OutputDtypes,
        arguments: list[list[Binding]],
        memory: Memory,
        arena_bytes: int,
        device: torch.device,
    ) -> None:
        """``arguments``: for each call, its arguments when they were bound."""
        self._outputs, self._arguments = outputs, arguments
        self._memory, self._arena_bytes = memory, arena_bytes
        self._device = device
        self.kept: list[Any] = []
        """Results of the last calls, kept because the judge reads them in place."""

    def report(self, token: str, first: int, results: list[Any]) -> Done:
        """Make the reply to a command that made calls: the memory addresses of the results.

        If a result lacks the operator's structure (number, dtypes and shapes of tensors), the reply describes the first
        such result instead. ``token``: the command's, repeated in the reply. ``first``: index of the first call.
        """
        places: list[tuple[ResultAddress, ...]] = []
        plain_values: list[tuple[Any, ...]] = []
        for index, result in enumerate(results, first):
            leaves = operators.flatten_outputs(result) if isinstance(result, (tuple, list)) else [result]
            found = self._locate(index, leaves)
            if found is None:
                return Done(token, odd_call=index, odd_leaves=tuple(_describe(leaf) for leaf in leaves[:64]))
            places.append(found[0])
            if found[1]:
                plain_values.append(found[1])
        return Done(token, 0, tuple(places), self._segments(places), tuple(plain_values))

    def _locate(self, index: int, leaves: list[Any]) -> tuple[tuple[ResultAddress, ...], tuple[Any, ...]] | None:
        """Where the tensors of one result lie, and its plain values. None: its structure is not the operator's."""
        if len(leaves) != len(self._outputs):
            return ((), ()) if not self._outputs and leaves == [None] else None
        places: list[ResultAddress] = []
        plain: list[Any] = []
        for leaf, (output, dtype) in zip(leaves, self._outputs, strict=True):
            if output.argument is not None:
                if not self._is_argument_itself(leaf, index, output.argument):
                    return None
            elif dtype is not None:
                if not self._matches(leaf, output, dtype):
                    return None
                places.append(self._place(leaf, output))
            elif isinstance(leaf, (bool, int, float)) or leaf is None:
                plain.append(sent_plain(leaf))
            else:
                return None
        return tuple(places), tuple(plain)

    def _is_argument_itself(self, leaf: Any, index: int, position: int) -> bool:
        """Whether a result is the argument, or a view of the same elements in the same order."""
        address, shape, strides, dtype = self._arguments[index][position]
        return (
            self._matches(leaf, Output(None, shape), dtype)
            and leaf.data_ptr() == address
            and same_steps(shape, leaf.stride(), strides)
            and not leaf.is_conj()
            and not leaf.is_neg()
        )

    def _matches(self, leaf: Any, output: Output, dtype: torch.dtype) -> bool:
        """Whether a result is a strided tensor of the right dtype, shape and device, and no subclass of a tensor."""
        return (
            type(leaf) in _PLAIN_TENSORS
            and leaf.dtype is dtype
            and (output.shape is None or leaf.shape == output.shape)
            and leaf.device == self._device
            and leaf.layout is torch.strided
        )

    def _place(self, leaf: torch.Tensor, output: Output) -> ResultAddress:
        """Keep a tensor and describe where it lies. Lazy values are computed, and scattered ones copied together."""
        lazy = leaf.is_conj() or leaf.is_neg()  # memory holds the value before conjugation or negation
        if lazy and not (output.fresh and self._is_argument(leaf)):
            leaf = leaf.resolve_conj().resolve_neg()
        if not leaf.is_contiguous() and not self._is_argument(leaf) and _is_sparse(leaf):
            leaf = leaf.contiguous()
        self.kept.append(leaf)
        strides = None if leaf.is_contiguous() else tuple(leaf.stride())
        return ResultAddress(leaf.data_ptr(), strides, tuple(leaf.shape) if output.shape is None else None)

    def _is_argument(self, leaf: torch.Tensor) -> bool:
        """Whether a tensor lies in the arena, where the arguments are."""
        return 0 <= leaf.data_ptr() - self._memory.address < self._arena_bytes

    def _segments(self, places: list[tuple[ResultAddress, ...]]) -> tuple[Segment, ...]:
        """The device allocations that contain these places, without the arena, which belongs to the judge."""
        if not isinstance(self._memory, OpenedDeviceMemory):
            return ()
        found: list[Segment] = []
        known = [(0, 1), (self._memory.address, self._memory.address + self._arena_bytes)]
        for address in (place.address for places_of_call in places for place in places_of_call):
            if not any(begin <= address < end for begin, end in known):
                segment = self._memory.segment(address)
                found.append(segment)
                known.append((segment.address, segment.address + segment.size_bytes))
        return tuple(found)


def _is_sparse(leaf: torch.Tensor) -> bool:
    """Whether a tensor is spread over more memory than the judge reads for it."""
    return span_elements(leaf.shape, leaf.stride()) > MOST_SPARSE * leaf.numel()


def _describe(leaf: Any) -> Leaf:
    if type(leaf) in _PLAIN_TENSORS:
        layout = "" if leaf.layout is torch.strided else f" ({str(leaf.layout).removeprefix('torch.')})"
        return TensorLeaf(str(leaf.dtype).removeprefix("torch.") + layout, tuple(leaf.shape), leaf.device.type)
    if leaf is None or isinstance(leaf, (bool, int, float)):
        return PlainLeaf(sent_plain(leaf))
    return OtherLeaf(type(leaf).__name__[:200])
