"""Runs the reference model of a KernelBench problem for the judge, inside the sandbox: it is third-party code.

The judge sends weights and inputs in memory that it owns, and fetches results into such memory. A *stretch* is a flat,
contiguous piece of memory that tensors lie in. The reply gives the stretch of each result. So the judge knows which
results share memory with an argument or with each other.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from torchstone.calls.attention_flops import attention_formulas
from torchstone.calls.dispatched_operators import dispatched_operators
from torchstone.model_operators import ModelFunction
from torchstone.operators import torch_dtype
from torchstone.protocol.peak_memory import PeakMemory
from torchstone.protocol.reference_model_messages import (
    CallModel,
    FetchResults,
    MakeWeights,
    ModelResults,
    ModelStretch,
    ModelTensor,
)
from torchstone.protocol.replies import Done, Reply
from torchstone.protocol.shared_memory import HostMemory, Memory, OpenedDeviceMemory
from torchstone.protocol.tensor_places import span_elements

_MOST_CACHED_BYTES = 256 << 20
"""Most device memory that torch may keep cached between calls of models: the judge and the candidate need it."""


class ModelCalls:
    """Carries out the judge's commands for one model."""

    def __init__(self, candidate: Any, device: torch.device) -> None:
        if not isinstance(candidate, ModelFunction):
            raise TypeError("no problem's model was loaded")
        self._model = candidate
        self._device = device
        self._new: list[torch.Tensor] = []
        """Stretches with results that the judge has not fetched yet."""

    def answer(self, command: CallModel | MakeWeights | FetchResults, descriptor: int | None) -> Reply:
        """Carry out a command and return the reply. Exceptions of the model propagate."""
        try:
            return self._reply(command, descriptor)
        finally:
            self._free_cached_memory()

    def _reply(self, command: CallModel | MakeWeights | FetchResults, descriptor: int | None) -> Reply:
        match command:
            case CallModel():
                return self._called(command, descriptor)
            case MakeWeights(token=token):
                self._new = [weight.contiguous().reshape(-1).cpu() for weight in self._model.weights_as_made()]
                stretches = tuple(_stretch(each) for each in self._new)
                return ModelResults(token, (), stretches)
            case FetchResults():
                self._fetch(command, descriptor)
                return Done(command.token)

    def _called(self, command: CallModel, descriptor: int | None) -> Reply:
        with self._memory(command.device_handle, command.arena_bytes, descriptor) as memory:
            stretches = [each.to(command.device_type) for each in _stretches(command, memory)]
            tensors = [_view(stretches[each.stretch], each) for each in command.tensors]
            weights, inputs = tensors[: command.weights], [_input(each, tensors) for each in command.inputs]
            with _default_dtype(command.default_dtype), torch.no_grad():
                results, answers = self._results(command, weights, inputs)
            self._wait()
            if memory is not None and not isinstance(memory, OpenedDeviceMemory):
                self._deliver(command, memory, stretches)
            found = _described(results, stretches)
            self._new = [] if command.device_type == "meta" else found[1]
            return ModelResults(command.token, found[0], tuple(map(_stretch, found[1])), **answers)

    def _results(
        self, command: CallModel, weights: list[torch.Tensor], inputs: list[Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """What the model returns, and the further reply fields that the command requests."""
        if command.lists_operators:
            results, names = dispatched_operators(lambda: self._model(weights, *inputs))
            return results, {"operators": tuple(sorted(names))}
        if command.counts_flops:
            from torch.utils.flop_counter import FlopCounterMode

            with FlopCounterMode(display=False, custom_mapping=attention_formulas()) as counter:
                return self._model(weights, *inputs), {"flops": int(counter.get_total_flops())}
        if not command.watches_memory:
            return self._model(weights, *inputs), {}
        with PeakMemory(command.device_type) as peak:
            results = self._model(weights, *inputs)
        return results, {"peak_memory_bytes": peak.size_bytes}

    def _fetch(self, command: FetchResults, descriptor: int | None) -> None:
        """Copy the new stretches into the judge's memory, and drop them."""
        with self._memory(command.device_handle, command.arena_bytes, descriptor) as memory:
            assert memory is not None, "FetchResults without memory"
            for offset, stretch in zip(command.offsets_bytes, self._new, strict=True):
                memory.tensor(offset, stretch.numel(), stretch.dtype).copy_(stretch)
            self._wait()
        self._new = []

    def _deliver(self, command: CallModel, memory: Memory, stretches: Sequence[torch.Tensor]) -> None:
        """Copy weights back from a device that shares no memory with the judge: a call may have changed buffers."""
        for offset, stretch in zip(command.offsets_bytes[: command.weights], stretches, strict=False):
            if stretch.device.type != "cpu":
                memory.tensor(offset, stretch.numel(), stretch.dtype).copy_(stretch)

    @contextmanager
    def _memory(self, handle: str | None, size_bytes: int, descriptor: int | None) -> Iterator[Memory | None]:
        """The memory that the judge shares for one command; None: it shares none."""
        if handle is not None:
            with contextlib.closing(OpenedDeviceMemory(handle, self._device)) as opened:
                try:
                    yield opened
                finally:
                    self._wait()  # a call that failed half-way may have left work on this memory
        elif descriptor is not None:
            try:
                memory = HostMemory(descriptor, size_bytes)
            finally:
                os.close(descriptor)
            yield memory
        else:
            yield None

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def _free_cached_memory(self) -> None:
        if self._device.type == "cuda" and torch.cuda.memory_reserved(self._device) > _MOST_CACHED_BYTES:
            torch.cuda.empty_cache()


def _stretches(command: CallModel, memory: Memory | None) -> list[torch.Tensor]:
    """A stretch for each argument: in the judge's memory, or on the meta device if there is none."""
    found = []
    for offset, each in zip(command.offsets_bytes, command.tensors, strict=True):
        elements = span_elements(each.shape, each.strides) if 0 not in each.shape else 0
        if memory is None:
            found.append(torch.empty(elements, dtype=torch_dtype(each.dtype), device=command.device_type))
        else:
            found.append(memory.tensor(offset, elements, torch_dtype(each.dtype)))
    return found


def _view(stretch: torch.Tensor, tensor: ModelTensor) -> torch.Tensor:
    return stretch.as_strided(tensor.shape, tensor.strides, tensor.offset)


def _input(given: Any, tensors: Sequence[torch.Tensor]) -> Any:
    if given.tensor is not None:
        return tensors[given.tensor]
    if given.tensors is not None:
        return [tensors[place] for place in given.tensors]
    return given.value


def _described(
    results: Sequence[Any], arguments: Sequence[torch.Tensor]
) -> tuple[tuple[ModelTensor, ...], list[torch.Tensor]]:
    """Describe where each result lies, and list the stretches that are not memory of an argument."""
    leaves = [_plain(result) for result in results]
    known = {_memory_of(stretch): place for place, stretch in enumerate(arguments)}
    of_arguments = {memory for memory, _ in known}
    shared = [_memory_of(leaf) for leaf in leaves]
    new: list[torch.Tensor] = []
    found = []
    for leaf, memory in zip(leaves, shared, strict=True):
        if memory not in known and memory[0] not in of_arguments and shared.count(memory) > 1:
            known[memory] = len(arguments) + len(new)
            new.append(torch.empty(0, dtype=leaf.dtype, device=leaf.device).set_(leaf.untyped_storage()))
        if memory in known:
            found.append(_placed(leaf, known[memory], int(leaf.storage_offset())))
        else:
            span = _span(leaf)
            # An argument's memory with another dtype is copied: the judge frees that memory before it fetches results.
            new.append(span.clone() if memory[0] in of_arguments else span)
            found.append(_placed(leaf, len(arguments) + len(new) - 1, 0))
    return tuple(found), new


def _memory_of(tensor: torch.Tensor) -> tuple[int, torch.dtype]:
    """A key that is equal for two tensors that share memory and have the same dtype."""
    return tensor.untyped_storage()._cdata, tensor.dtype


def _plain(result: Any) -> torch.Tensor:
    """The result without autograd history, lazy conjugation and lazy negation; raises TypeError if it is no tensor."""
    if not isinstance(result, torch.Tensor):
        raise TypeError(f"the model returns a {type(result).__name__}, which is no tensor")
    if result.layout is not torch.strided:
        raise TypeError("the model returns a tensor that is not strided")
    return result.detach().resolve_conj().resolve_neg()


def _span(leaf: torch.Tensor) -> torch.Tensor:
    """A flat view of the memory from the tensor's first element to its last."""
    if leaf.numel() == 0:
        return leaf.new_empty(0)
    return leaf.as_strided((span_elements(leaf.shape, leaf.stride()),), (1,), leaf.storage_offset())


def _placed(leaf: torch.Tensor, stretch: int, offset: int) -> ModelTensor:
    return ModelTensor(stretch, _name(leaf.dtype), tuple(leaf.shape), tuple(leaf.stride()), offset)


def _stretch(flat: torch.Tensor) -> ModelStretch:
    return ModelStretch(flat.numel(), _name(flat.dtype))


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@contextmanager
def _default_dtype(name: str) -> Iterator[None]:
    """Set torch's default dtype in the block: for the judge's float64 evaluation it is float64."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch_dtype(name))
    try:
        yield
    finally:
        torch.set_default_dtype(before)
