"""The worker: the only process that runs candidate code.

Everything after :func:`Load` shares its address space with the candidate and is therefore not trusted: this
module is convenience for honest kernels. What must hold against dishonest ones holds outside, in the judge.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import torch

from torchstone import operators
from torchstone.schema import decode, tensors_of
from torchstone.workers import sandbox
from torchstone.workers.attribution import attribute
from torchstone.workers.buffers import HostMemory, Memory, OpenedDeviceMemory
from torchstone.workers.protocol import (
    HEADER_BYTES,
    MAX_TEXT_CHARACTERS,
    Attribute,
    Attributed,
    Bind,
    Call,
    Command,
    Done,
    Failed,
    Leaf,
    Load,
    OtherLeaf,
    OutputPlacement,
    PlainLeaf,
    Ready,
    Release,
    Reply,
    TensorLeaf,
    frame,
    frame_length,
)


def main(cell: sandbox.Cell, readable: tuple[str, ...], commands: int, replies: int, log: int) -> NoReturn:
    """Close the sandbox, open the device, serve. Ends with the process."""
    _redirect_output(log)
    sandbox.close_doors(cell, readable)
    scratch = Path(cell.scratch)
    _move_caches(scratch)
    torch.set_num_threads(cell.policy.threads)
    device = _open_device(cell.policy.device_type)
    channel = _Channel(socket.socket(fileno=commands), replies)
    channel.send(Ready(cell.layers))
    _Server(channel, device, scratch).serve()
    os._exit(0)


def _redirect_output(log: int) -> None:
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.close(null)
    faulthandler.enable(2)  # a segfault leaves its Python stack in the log tail


def _move_caches(scratch: Path) -> None:
    """Compilers and libraries keep their files in the scratch folder."""
    os.chdir(scratch)
    temporary = str(scratch / "tmp")
    os.environ.update(
        HOME=str(scratch),
        TMPDIR=temporary,
        TRITON_CACHE_DIR=str(scratch / "triton"),
        TORCHINDUCTOR_CACHE_DIR=str(scratch / "inductor"),
        TORCH_EXTENSIONS_DIR=str(scratch / "extensions"),
        CUDA_CACHE_PATH=str(scratch / "cuda"),
        XDG_CACHE_HOME=str(scratch / "cache"),
    )
    import tempfile

    tempfile.tempdir = temporary
    sys.dont_write_bytecode = True


def _open_device(device_type: str) -> torch.device:
    device = torch.device(device_type, 0) if device_type != "cpu" else torch.device("cpu")
    if device.type == "cuda":
        torch.zeros(1, device=device)
        torch.cuda.synchronize(device)
    return device


class _Channel:
    """Commands in, replies out."""

    def __init__(self, commands: socket.socket, replies: int) -> None:
        self._commands = commands
        self._replies = replies

    def receive(self) -> tuple[Command, int | None] | None:
        header, descriptors, _, _ = socket.recv_fds(self._commands, HEADER_BYTES, 1)
        if len(header) < HEADER_BYTES:
            return None
        remaining = frame_length(header)
        parts: list[bytes] = []
        while remaining:
            part = self._commands.recv(remaining)
            if not part:
                return None
            parts.append(part)
            remaining -= len(part)
        return decode(b"".join(parts), Command), descriptors[0] if descriptors else None  # type: ignore[arg-type]

    def send(self, reply: Reply) -> None:
        data = frame(reply)
        while data:
            data = data[os.write(self._replies, data) :]


class _Server:
    def __init__(self, channel: _Channel, device: torch.device, scratch: Path) -> None:
        self._channel = channel
        self._device = device
        self._scratch = scratch
        self._candidate: Callable[..., Any] | None = None
        self._bound: _BoundCase | None = None

    def serve(self) -> None:
        """Answer commands until the judge closes the socket."""
        while (received := self._channel.receive()) is not None:
            command, descriptor = received
            try:
                reply: Reply = self._answer(command, descriptor)
            except BaseException as error:  # noqa: BLE001 - a candidate may raise anything, SystemExit included
                reply = _failure(command.token, error)
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(OSError, ValueError, AttributeError):
                    stream.flush()
            self._channel.send(reply)

    def _answer(self, command: Command, descriptor: int | None) -> Reply:
        match command:
            case Load(token=token, implementation=implementation):
                self._candidate = load_candidate(implementation, self._scratch)
                return Done(token)
            case Bind(token=token):
                self._bound = _BoundCase(command, descriptor, self._device)
                return Done(token)
            case Release(token=token):
                if self._bound is not None:
                    self._bound.close()
                    self._bound = None
                return Done(token)
            case Attribute(token=token, kernels=kernels):
                assert self._bound is not None, "Attribute before Bind"
                assert self._candidate is not None, "Attribute before Load"
                args, kwargs = self._bound.arguments(0)
                return Attributed(
                    token, attribute(self._candidate, args, kwargs, kernels and self._device.type == "cuda")
                )
            case Call(token=token, first=first, count=count, pretend=pretend):
                assert self._bound is not None, "Call before Bind"
                candidate = self._bound.pretend if pretend else self._candidate
                assert candidate is not None, "Call before Load"
                return self._bound.call(token, candidate, first, count)


def load_candidate(implementation: Any, scratch: Path) -> Callable[..., Any]:
    """Imported late: `loading` is only needed once a candidate comes."""
    from torchstone.workers.loading import load

    return load(implementation, scratch)


class _BoundCase:
    """The argument lists of a case's calls, and where their results go."""

    def __init__(self, bind: Bind, descriptor: int | None, device: torch.device) -> None:
        self._device = device
        self._outputs = bind.outputs
        self._memory: Memory
        if bind.device_handle is not None:
            self._memory = OpenedDeviceMemory(bind.device_handle, device)
        else:
            assert descriptor is not None, "Bind without memory"
            self._memory = HostMemory(descriptor, bind.arena_bytes)
            os.close(descriptor)
        recipes = tensors_of(bind.case)
        self._tensors: list[list[torch.Tensor]] = []
        self._calls: list[tuple[list[Any], dict[str, Any]]] = []
        self._slots: list[list[torch.Tensor | None]] = []
        for index in range(bind.sets):
            tensors = [
                operators.view_of(self._flat(placement, index), recipe)
                for placement, recipe in zip(bind.inputs, recipes, strict=True)
            ]
            self._tensors.append(tensors)
            self._calls.append(operators.build_arguments(bind.case, tensors, device))
            self._slots.append([self._slot(output, index) for output in bind.outputs])
        self._extents = [[_extent(tensor) for tensor in tensors] for tensors in self._tensors]
        self._ready_results: list[Any] | None = None
        self._pretended = 0

    def arguments(self, index: int) -> tuple[list[Any], dict[str, Any]]:
        return self._calls[index]

    def close(self) -> None:
        if isinstance(self._memory, OpenedDeviceMemory):
            self._memory.close()

    def _flat(self, placement: Any, index: int) -> torch.Tensor:
        offset = placement.offset_bytes + index * placement.pitch_bytes
        return self._memory.tensor(offset, placement.elements, operators.torch_dtype(placement.dtype))

    def _slot(self, output: OutputPlacement, index: int) -> torch.Tensor | None:
        if output.placement is None or output.argument is not None:
            return None
        return self._flat(output.placement, index).view(output.shape)

    def pretend(self, *args: Any, **kwargs: Any) -> Any:
        """A candidate that takes no time: results made beforehand, the arguments themselves where in place."""
        if self._ready_results is None:
            self._ready_results = [self._ready_result(index) for index in range(len(self._calls))]
        self._pretended = (self._pretended + 1) % len(self._ready_results)
        return self._ready_results[self._pretended - 1]

    def _ready_result(self, index: int) -> Any:
        leaves = [
            self._tensors[index][output.argument]
            if output.argument is not None
            else 0
            if slot is None
            else torch.zeros_like(slot)
            for output, slot in zip(self._outputs, self._slots[index], strict=True)
        ]
        return leaves[0] if len(leaves) == 1 else tuple(leaves)

    def call(self, token: str, candidate: Callable[..., Any], first: int, count: int) -> Done:
        """Call after call, each result brought into the judge's buffer before the next."""
        plain_values: list[tuple[Any, ...]] = []
        began = time.perf_counter_ns()
        for index in range(first, first + count):
            args, kwargs = self._calls[index]
            result = candidate(*args, **kwargs)
            if not self._deliver(index, result, plain_values):
                return Done(token, odd_call=index, odd_leaves=self._describe(index, result))
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return Done(token, time.perf_counter_ns() - began, tuple(plain_values))

    def _deliver(self, index: int, result: Any, plain_values: list[tuple[Any, ...]]) -> bool:
        """Copy a result out. False: it is not what the operator returns."""
        leaves = operators.flatten_outputs(result) if isinstance(result, (tuple, list)) else [result]
        if len(leaves) != len(self._outputs):
            return len(self._outputs) == 0 and leaves == [None]
        plain: list[Any] = []
        for leaf, slot, output in zip(leaves, self._slots[index], self._outputs, strict=True):
            if slot is not None:
                if not _matches(leaf, slot):
                    return False
                if output.fresh and (self._argument_of(index, leaf) is not None or _twice(leaves)):
                    return False
                slot.copy_(leaf)
            elif output.argument is not None:
                argument = self._tensors[index][output.argument]
                if not isinstance(leaf, torch.Tensor) or leaf.data_ptr() != argument.data_ptr():
                    return False
            elif isinstance(leaf, (bool, int, float)) or leaf is None:
                plain.append(leaf)
            else:
                return False
        if plain:
            plain_values.append(tuple(plain))
        return True

    def _describe(self, index: int, result: Any) -> tuple[Leaf, ...]:
        leaves = operators.flatten_outputs(result)[:64]
        return tuple(self._describe_leaf(index, leaf, leaves[:place]) for place, leaf in enumerate(leaves))

    def _argument_of(self, index: int, leaf: torch.Tensor) -> int | None:
        """The argument in whose memory a leaf starts."""
        pointer = leaf.data_ptr()
        for position, (begin, end) in enumerate(self._extents[index]):
            if begin <= pointer < end:
                return position
        return None

    def _describe_leaf(self, index: int, leaf: Any, earlier: list[Any]) -> Leaf:
        if isinstance(leaf, torch.Tensor):
            dtype = str(leaf.dtype).removeprefix("torch.")
            shared = next((place for place, other in enumerate(earlier) if _twice([other, leaf])), None)
            return TensorLeaf(dtype, tuple(leaf.shape), leaf.device.type, self._argument_of(index, leaf), shared)
        if leaf is None or isinstance(leaf, (bool, int, float)):
            return PlainLeaf(leaf)
        return OtherLeaf(type(leaf).__name__[:200])


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """Where the memory of an argument begins and ends, gaps and offset included; (0, 0) for one without elements."""
    storage = tensor.untyped_storage()
    begin = storage.data_ptr()
    return (begin, begin + storage.nbytes()) if tensor.numel() else (0, 0)


def _twice(leaves: list[Any]) -> bool:
    """Whether two of these are tensors that begin at the same element. Parts of one buffer are no aliases."""
    begins = [leaf.data_ptr() for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.numel()]
    return len(set(begins)) < len(begins)


def _matches(leaf: Any, slot: torch.Tensor) -> bool:
    return (
        isinstance(leaf, torch.Tensor)
        and leaf.shape == slot.shape
        and leaf.dtype == slot.dtype
        and leaf.device == slot.device
    )


def _failure(token: str, error: BaseException) -> Failed:
    text = "".join(traceback.format_exception(error))[-MAX_TEXT_CHARACTERS:]
    name = type(error).__name__
    message = f"{name}: {error}"[:MAX_TEXT_CHARACTERS] if str(error) else name
    if isinstance(error, SystemExit):
        return Failed(token, "exit", f"called sys.exit({error.code!r})"[:MAX_TEXT_CHARACTERS], text)
    if isinstance(error, NotImplementedError):
        return Failed(token, "unsupported", message, text)
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        return Failed(token, "memory", message, text)
    if isinstance(error, torch.AcceleratorError) if hasattr(torch, "AcceleratorError") else "CUDA error" in str(error):
        return Failed(token, "device", message, text)
    return Failed(token, "exception", message, text)
