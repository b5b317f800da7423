"""Runs the reference models of KernelBench problems for the judge, in sandboxed workers: they are third-party code.

Arguments go to the worker in memory that the judge owns, and results come back in such memory. A model that takes too
long, needs too much memory or ends its process has no result: RuntimeError, like a refusal of torch. If the model has
returned results before, :class:`ModelLostError` is raised instead. So a candidate gains nothing if it slows or kills
this worker.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from torchstone import model_operators, operators, schema
from torchstone.protocol.commands import Command, Load
from torchstone.protocol.reference_model_messages import (
    CallModel,
    FetchResults,
    MakeWeights,
    ModelInput,
    ModelResults,
    ModelStretch,
    ModelTensor,
)
from torchstone.protocol.replies import Failed
from torchstone.protocol.shared_memory import Arena, DeviceArena, HostArena, can_share
from torchstone.protocol.tensor_places import span_elements
from torchstone.supervisor.pausable_worker import PausableWorker
from torchstone.supervisor.worker_failures import BadReplyError, OverLimitError, WorkerEndedError, WorkerTimeoutError

_LOAD_SECONDS = 120.0
"""Deadline for executing a problem file, on a busy machine."""
_ALIGNMENT = 512
"""Bytes: tensors begin at multiples of this, like those of torch's CUDA allocator."""
_LARGE_BYTES = 512 << 20
"""Bytes of arguments or results above which torch's unused device memory in this process is freed first."""
_WORKER_FAILURES = (OverLimitError, WorkerEndedError, BadReplyError)


class ModelLostError(Exception):
    """A model that has returned results before was lost or took too long. The candidate is not to blame."""


class SandboxedReferenceModels:
    """Runs models of cases, one problem at a time. See :class:`torchstone.model_operators.ModelHost`."""

    def __init__(self, take_worker: Callable[[], PausableWorker], device: torch.device) -> None:
        self._take_worker = take_worker
        self._device = device
        self._worker: PausableWorker | None = None
        self._loaded: schema.SourceFiles | None = None
        self._has_answered: set[schema.SourceFiles] = set()
        """Problems whose model has returned results."""
        self.call_seconds = 60.0
        """Deadline of a call."""

    def function(self, case: schema.Case) -> Callable[..., list[Any]]:
        """The model as a function of its weights and inputs."""

        def call(weights: Sequence[torch.Tensor], *inputs: Any) -> list[Any]:
            return self._call(case, weights, inputs)[0]

        return call

    def weights(self, case: schema.Case) -> list[torch.Tensor]:
        """Make the model's weights, on the CPU."""
        answer = self._ask(case, MakeWeights(secrets.token_hex(8)))
        listed = case.args[0]
        assert isinstance(listed, schema.Sequence)
        shapes = [item.shape for item in listed.items if isinstance(item, schema.Tensor)]
        stretches = self._fetch(answer.stretches, torch.device("cpu"))
        return [stretch.reshape(shape) for stretch, shape in zip(stretches, shapes, strict=True)]

    def flops(self, case: schema.Case) -> int | None:
        """Floating-point operations of a call on the meta device; None: not known."""
        given = [_meta_tensor(recipe) for recipe in schema.tensors_of(case)]
        args, _ = operators.build_arguments(case, given, torch.device("meta"))
        try:
            return self._call(case, args[0], args[1:], counts_flops=True)[1].flops
        except (RuntimeError, ModelLostError):  # shapes that depend on values, operators without a meta kernel
            return None

    def peak_bytes(self, case: schema.Case, args: Sequence[Any]) -> int | None:
        """Peak memory of a call beyond its arguments; None: not known."""
        return self._call(case, args[0], args[1:], watches_memory=True)[1].peak_memory_bytes

    def operators_called(self, case: schema.Case, args: Sequence[Any]) -> frozenset[str]:
        """Names of torch's operators that a call uses."""
        return frozenset(self._call(case, args[0], args[1:], lists_operators=True)[1].operators)

    def close(self) -> None:
        """End the worker. The next call starts another."""
        if self._worker is not None:
            self._worker.kill()
        self._worker = self._loaded = None

    def _call(
        self,
        case: schema.Case,
        weights: Sequence[torch.Tensor],
        inputs: Sequence[Any],
        **asked: bool,
    ) -> tuple[list[torch.Tensor], ModelResults]:
        """The results and the reply. ``asked``: what the reply reports besides, as fields of :class:`CallModel`."""
        try:
            return self._call_worker(case, weights, inputs, asked)
        except torch.OutOfMemoryError:
            self.close()  # it may keep memory of the failed call, for which the candidate would be blamed
            raise

    def _call_worker(
        self,
        case: schema.Case,
        weights: Sequence[torch.Tensor],
        inputs: Sequence[Any],
        asked: Mapping[str, bool],
    ) -> tuple[list[torch.Tensor], ModelResults]:
        self._load(case)
        tensors, forms = _tensors_and_inputs(weights, inputs)
        flat = [_stretch_of(tensor) for tensor in tensors]
        device = next((tensor.device for tensor in tensors), self._device)
        offsets, size_bytes = _offsets_and_size([(each.numel(), each.dtype) for each in flat])
        arena = None if device.type == "meta" else self._arena(device, size_bytes)
        try:
            command = CallModel(
                secrets.token_hex(8),
                device.type,
                tuple(_model_tensor(tensor, place) for place, tensor in enumerate(tensors)),
                offsets,
                len(weights),
                forms,
                size_bytes,
                None if arena is None else arena.device_handle,
                str(torch.get_default_dtype()).removeprefix("torch."),
                **asked,
            )
            in_arena = [] if arena is None else _copy_into(arena, flat, offsets, device)
            answer = self._ask(case, command, _descriptor(arena))
            for place in model_operators.written(case) if in_arena else ():  # a call may write to the model's buffers
                flat[place].copy_(in_arena[place])
        finally:
            if arena is not None:
                arena.close()
        return self._results(answer, tensors, device), answer

    def _results(
        self, answer: ModelResults, tensors: Sequence[torch.Tensor], device: torch.device
    ) -> list[torch.Tensor]:
        new = self._fetch(answer.stretches, device)
        found = []
        for result in answer.results:
            place = result.stretch - len(tensors)
            memory = new[place] if place >= 0 else tensors[result.stretch]
            begin = 0 if place >= 0 else memory.storage_offset()
            if operators.torch_dtype(result.dtype) is not memory.dtype:
                raise RuntimeError(f"the model's process reported {memory.dtype} memory as {result.dtype[:40]}")
            found.append(memory.as_strided(result.shape, result.strides, begin + result.offset))
        return found

    def _fetch(self, stretches: Sequence[ModelStretch], device: torch.device) -> list[torch.Tensor]:
        """Private copies of these results. The worker keeps its view of the memory that they come in."""
        kinds = [(each.elements, operators.torch_dtype(each.dtype)) for each in stretches]
        if device.type == "meta":
            return [torch.empty(elements, dtype=dtype, device="meta") for elements, dtype in kinds]
        if not kinds:
            return []
        offsets, size_bytes = _offsets_and_size(kinds)
        arena = self._arena(device, size_bytes)
        try:
            command = FetchResults(secrets.token_hex(8), offsets, size_bytes, arena.device_handle)
            self._answer(command, _descriptor(arena))
            found = (arena.tensor(at, *kind) for at, kind in zip(offsets, kinds, strict=True))
            return [each.clone() if each.device == device else each.to(device) for each in found]
        finally:
            _wait(device)
            arena.close()

    def _arena(self, device: torch.device, size_bytes: int) -> Arena:
        """Memory for tensors of this device. If device memory is not shared, host memory: the worker copies it over."""
        if device.type == "cpu" or self._is_copied or not can_share(device):
            return HostArena(size_bytes)
        if size_bytes > _LARGE_BYTES:
            torch.cuda.empty_cache()
        return DeviceArena(size_bytes, self._device)

    @property
    def _is_copied(self) -> bool:
        """Whether the user has chosen that no device memory is shared."""
        return self._worker is not None and self._worker.results == "copied"

    def _ask(self, case: schema.Case, command: Command, descriptor: int | None = None) -> ModelResults:
        self._load(case)
        reply = self._answer(command, descriptor)
        if not isinstance(reply, ModelResults):
            raise RuntimeError(f"expected results from the model's process, got {type(reply).__name__}")
        assert case.model is not None
        self._has_answered.add(case.model)
        return reply

    def _load(self, case: schema.Case) -> None:
        assert case.model is not None
        if self._worker is None or self._loaded != case.model:
            self.close()
            self._worker = self._take_worker()
            self._loaded = case.model
            self._answer(Load(secrets.token_hex(8), schema.torchs_own(case)), None, _LOAD_SECONDS)

    def _answer(self, command: Command, descriptor: int | None, seconds: float | None = None) -> object:
        assert self._worker is not None
        lost_error = ModelLostError if self._loaded in self._has_answered else RuntimeError
        limit_seconds = self.call_seconds if seconds is None else seconds
        try:
            reply = self._worker.ask(command, time.monotonic() + limit_seconds, descriptor)
            self._worker.freeze()
        except WorkerTimeoutError:
            self.close()
            raise lost_error(f"the model took longer than {limit_seconds:g} s for one call") from None
        except _WORKER_FAILURES as error:
            self.close()
            raise lost_error(f"the model's process was lost: {error}") from None
        if isinstance(reply, Failed):
            if reply.kind == "device":  # every later call in this process would fail
                self.close()
            _raise_as_torch(reply, self._device)
        return reply


def _raise_as_torch(failed: Failed, device: torch.device) -> None:
    """Raise the error that torch would raise in this process."""
    if failed.kind == "memory" and device.type == "cuda":
        raise torch.OutOfMemoryError(failed.message)
    raise RuntimeError(failed.message)


def _descriptor(arena: Arena | None) -> int | None:
    return arena.descriptor if isinstance(arena, HostArena) else None


def _tensors_and_inputs(
    weights: Sequence[torch.Tensor], inputs: Sequence[Any]
) -> tuple[list[torch.Tensor], tuple[ModelInput, ...]]:
    """All tensors in one list, and for each input which of them it is made of, or its value."""
    tensors, forms = list(weights), []
    for given in inputs:
        if isinstance(given, torch.Tensor):
            forms.append(ModelInput(tensor=len(tensors)))
            tensors.append(given)
        elif isinstance(given, list | tuple) and given and isinstance(given[0], torch.Tensor):
            forms.append(ModelInput(tensors=tuple(range(len(tensors), len(tensors) + len(given)))))
            tensors.extend(given)
        else:
            forms.append(ModelInput(value=given))
    return tensors, tuple(forms)


def _stretch_of(tensor: torch.Tensor) -> torch.Tensor:
    """A flat view of a tensor's memory, from its first element to its last."""
    if tensor.numel() == 0:
        return tensor.new_empty(0)
    return tensor.as_strided((span_elements(tensor.shape, tensor.stride()),), (1,), tensor.storage_offset())


def _model_tensor(tensor: torch.Tensor, place: int) -> ModelTensor:
    name = str(tensor.dtype).removeprefix("torch.")
    return ModelTensor(place, name, tuple(tensor.shape), tuple(tensor.stride()))


def _offsets_and_size(stretches: Sequence[tuple[int, torch.dtype]]) -> tuple[tuple[int, ...], int]:
    """The offsets of these stretches, one behind the other, and the size of all, in bytes."""
    offsets, end = [], 0
    for elements, dtype in stretches:
        offsets.append(end)
        end += -(-elements * dtype.itemsize // _ALIGNMENT) * _ALIGNMENT
    return tuple(offsets), end


def _copy_into(
    arena: Arena, flat: Sequence[torch.Tensor], offsets: Sequence[int], device: torch.device
) -> list[torch.Tensor]:
    there = [arena.tensor(at, each.numel(), each.dtype) for at, each in zip(offsets, flat, strict=True)]
    for target, source in zip(there, flat, strict=True):
        target.copy_(source)
    _wait(device)
    return there


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _meta_tensor(recipe: schema.Tensor) -> torch.Tensor:
    dtype = operators.torch_dtype(recipe.dtype)
    return operators.view_of(torch.empty(operators.storage_extent(recipe), dtype=dtype, device="meta"), recipe)
