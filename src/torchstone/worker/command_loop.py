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

import msgspec
import torch

from torchstone import operators
from torchstone.chain import Chain
from torchstone.gradients import Differentiated, Passes
from torchstone.isolation import sandbox
from torchstone.links import Links, leading
from torchstone.models import ModelFunction
from torchstone.protocol.buffers import HostMemory, Memory, MirroredMemory, OpenedDeviceMemory
from torchstone.protocol.messages import (
    GO,
    HEADER_BYTES,
    KEPT_ARENA_BYTES,
    MAX_TEXT_CHARACTERS,
    MOST_SPARSE,
    Armed,
    Attribute,
    Attributed,
    Bind,
    Bound,
    Build,
    Call,
    CallModel,
    Capture,
    Collect,
    Collected,
    Command,
    Copy,
    Done,
    Failed,
    FetchResults,
    Leaf,
    Load,
    MakeWeights,
    Open,
    OtherLeaf,
    Output,
    PlainLeaf,
    Play,
    Ready,
    Release,
    Reply,
    ResultAddress,
    Segment,
    TensorLeaf,
    Trace,
    Traced,
    Wear,
    frame,
    frame_length,
    same_steps,
    sent_plain,
    span_elements,
)
from torchstone.protocol.worker_environment import FEW_QUEUES
from torchstone.schema import decode, tensors_of
from torchstone.worker import compiler_setup
from torchstone.worker.attribution import attribute
from torchstone.worker.dirty_memory import have_ready, soil_for
from torchstone.worker.graph_recording import PreparedCall, Recording
from torchstone.worker.result_copying import ResultCopier
from torchstone.worker.separate_passes import made_apart

_KEPT_BYTES = 256 << 20
"""What a worker may keep of a device's memory between cases."""


def main(cell: sandbox.Cell, readable: tuple[str, ...], commands: int, replies: int, log: int) -> NoReturn:
    """Close the sandbox, open the device, serve. Ends with the process."""
    _redirect_output(log)
    sandbox.close_doors(cell, readable)
    scratch = Path(cell.scratch)
    _move_caches(scratch, cell.policy.device_type)
    torch.set_num_threads(cell.policy.threads)
    device = _choose_device(cell.policy)
    if cell.policy.device_at_start:
        _open_device(device)
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


def _move_caches(scratch: Path, device_type: str) -> None:
    """Compilers and libraries keep their files in the scratch folder."""
    os.chdir(scratch)
    temporary = str(scratch / "tmp")
    os.environ.update(
        HOME=str(scratch),
        USER="candidate",  # its uid has no name in the password file, and libraries ask for one
        TMPDIR=temporary,
        TRITON_CACHE_DIR=str(scratch / "triton"),
        TORCHINDUCTOR_CACHE_DIR=str(scratch / "inductor"),
        TORCH_EXTENSIONS_DIR=str(scratch / "extensions"),
        CUDA_CACHE_PATH=str(scratch / "cuda"),
        PYTORCH_KERNEL_CACHE_PATH=str(scratch / "kernels"),
        XDG_CACHE_HOME=str(scratch / "cache"),
    )
    import tempfile

    tempfile.tempdir = temporary
    compiler_setup.seed_triton(scratch / "triton")
    if device_type != "cpu":
        compiler_setup.seed_torch(scratch / "kernels")
    sys.dont_write_bytecode = True


def _choose_device(policy: sandbox.Policy) -> torch.device:
    """Which device it is is settled before a candidate comes, who may set variables that the driver looks at."""
    if policy.device_type == "cpu":
        return torch.device("cpu")
    if policy.few_queues:
        os.environ.update(FEW_QUEUES)
    torch.cuda.init()  # type: ignore[no-untyped-call]
    torch.cuda.device_count()  # torch looks at CUDA's variables whenever it is asked, until it has counted
    return torch.device(policy.device_type, 0)


def _open_device(device: torch.device) -> None:
    if device.type == "cuda":
        torch.zeros(1, device=device)
        torch.cuda.synchronize(device)


class _Channel:
    """Commands in, replies out."""

    def __init__(self, commands: socket.socket, replies: int) -> None:
        self._commands = commands
        self._replies = replies
        self.received_ns = 0
        """When the command in hand came."""
        self.framing_ns = 0
        """How long the last reply took to be written down."""

    def receive(self) -> tuple[Command, int | None] | None:
        header, descriptors, _, _ = socket.recv_fds(self._commands, HEADER_BYTES, 1)
        self.received_ns = time.perf_counter_ns()
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

    def await_go(self) -> None:
        """Look for the byte again and again: a sleeping process is woken late, by a varying time."""
        while True:
            try:
                if self._commands.recv(1, socket.MSG_DONTWAIT) != GO:
                    os._exit(0)  # the judge is gone
                return
            except BlockingIOError:
                pass

    def send(self, reply: Reply) -> None:
        began = time.perf_counter_ns()
        data = frame(reply)
        self.framing_ns = time.perf_counter_ns() - began
        while data:
            data = data[os.write(self._replies, data) :]


class _Server:
    def __init__(self, channel: _Channel, device: torch.device, scratch: Path) -> None:
        self._channel = channel
        self._device = device
        self._scratch = scratch
        self._candidate: Callable[..., Any] | None = None
        self._bound: _BoundCase | None = None
        self._kept_memory: dict[str, OpenedDeviceMemory] = {}
        self._copier = ResultCopier(device)
        self._models: Any = None
        """Who answers for a problem's model, once it is asked for."""
        self._framing_ns: dict[int, int] = {}
        """By calls in a block, of a candidate that takes no time."""

    def _memory(self, bind: Bind, descriptor: int | None) -> Memory:
        """What the judge shares for a case. Small memory on a device comes again and stays open."""
        if bind.device_handle is None:
            assert descriptor is not None, "Bind without memory"
            try:
                if self._device.type != "cpu":
                    return MirroredMemory(descriptor, bind.arena_bytes, self._device)
                return HostMemory(descriptor, bind.arena_bytes)
            finally:
                os.close(descriptor)
        if bind.arena_bytes > KEPT_ARENA_BYTES:
            return OpenedDeviceMemory(bind.device_handle, self._device)
        if bind.device_handle not in self._kept_memory:
            self._kept_memory[bind.device_handle] = OpenedDeviceMemory(bind.device_handle, self._device)
        return self._kept_memory[bind.device_handle]

    def _model_calls(self, command: CallModel | MakeWeights | FetchResults, descriptor: int | None) -> Reply:
        """Imported late, as candidates have no need of it."""
        if self._models is None:
            from torchstone.worker.problem_models import ModelCalls

            self._models = ModelCalls(self._candidate, self._device)
        reply: Reply = self._models.answer(command, descriptor)
        return reply

    def serve(self) -> None:
        """Answer commands until the judge closes the socket."""
        while (received := self._channel.receive()) is not None:
            command, descriptor = received
            try:
                reply: Reply = self._answer(command, descriptor)
            except BaseException as error:  # noqa: BLE001 - a candidate may raise anything, SystemExit included
                raised_in = self._bound.raised_in if isinstance(command, Call) and self._bound is not None else None
                reply = msgspec.structs.replace(_failure(command.token, error), call=raised_in)
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(OSError, ValueError, AttributeError):
                    stream.flush()
            if isinstance(command, Call) and command.pretend and isinstance(reply, Done):
                self._send_with_all_it_took(command, reply)
            else:
                self._channel.send(reply)

    def _send_with_all_it_took(self, command: Call, reply: Done) -> None:
        """Of a candidate that takes no time, the claim is everything that is done here for a command.

        That is what a candidate could do quicker. To write a reply down took as long as it did for the last one like
        it.
        """
        took_ns = time.perf_counter_ns() - self._channel.received_ns + self._framing_ns.get(command.count, 0)
        self._channel.send(msgspec.structs.replace(reply, claimed_ns=took_ns))
        self._framing_ns[command.count] = self._channel.framing_ns

    def _answer(self, command: Command, descriptor: int | None) -> Reply:
        match command:
            case Load(token=token, implementation=implementation, built_bytes=built_bytes):
                if descriptor is not None:
                    unpack_built(self._scratch, descriptor, built_bytes)
                self._candidate = load_candidate(implementation, self._scratch)
                return Done(token)
            case Build(token=token):
                build_candidate()
                return Done(token)
            case Collect(token=token, room_bytes=room_bytes):
                assert descriptor is not None, "Collect without memory"
                return Collected(token, pack_built(self._scratch, descriptor, room_bytes))
            case Open(token=token):
                _open_device(self._device)
                return Done(token)
            case Bind(token=token):
                self._bound = _BoundCase(command, self._memory(command, descriptor), self._device, self._candidate)
                return Bound(token, self._bound.arena_address)
            case Release(token=token):
                if self._bound is not None:
                    self._bound.close()
                    self._bound = None
                return Done(token)
            case Copy(token=token):
                self._copier.copy(command, descriptor)
                return Done(token)
            case Attribute(token=token, kernels=kernels):
                assert self._bound is not None, "Attribute before Bind"
                assert self._candidate is not None, "Attribute before Load"
                self._bound.fetch(1)
                function, args, kwargs = self._bound.prepared(self._candidate)[0]
                return Attributed(token, attribute(function, args, kwargs, kernels and self._device.type == "cuda"))
            case Trace(token=token, sets=sets):
                assert self._bound is not None, "Trace before Bind"
                assert self._candidate is not None, "Trace before Load"
                assert descriptor is not None, "Trace without memory"
                self._bound.fetch(sets)
                prepared = self._bound.prepared(self._candidate)[:sets]
                return Traced(token, trace(prepared, command, descriptor, self._device))
            case Call(token=token, first=first, count=count, pretend=pretend, keep=keep, chain=chain):
                assert self._bound is not None, "Call before Bind"
                candidate = self._bound.pretend if pretend else self._candidate
                assert candidate is not None, "Call before Load"
                self._bound.keep(keep)
                backward, others = command.backward, not command.stated_shapes
                return self._bound.call(token, candidate, first, count, chain, backward, others)
            case Wear(token=token, blocks=blocks, count=count, keep=keep):
                assert self._bound is not None, "Wear before Bind"
                assert self._candidate is not None, "Wear before Load"
                self._bound.keep(keep)
                for _ in range(blocks):  # like any other from within: nobody is careful only where it is looked at
                    self._bound.call(token, self._candidate, 0, count)
                return Done(token)
            case Capture(pretend=pretend):
                assert self._bound is not None, "Capture before Bind"
                candidate = self._bound.pretend_on_device if pretend else self._candidate
                assert candidate is not None, "Capture before Load"
                return self._bound.capture(command, candidate)
            case Play(token=token):
                assert self._bound is not None, "Play before Bind"
                self._channel.send(Armed(token))
                self._channel.await_go()
                return self._bound.play(command)
            case CallModel() | MakeWeights() | FetchResults():
                return self._model_calls(command, descriptor)


def load_candidate(implementation: Any, scratch: Path) -> Callable[..., Any]:
    """Imported late: `loading` is only needed once a candidate comes."""
    from torchstone.worker.loading import load

    return load(implementation, scratch)


def build_candidate() -> None:
    """Imported late: few candidates are built here."""
    from torchstone.worker.building import build_all

    build_all()


def unpack_built(scratch: Path, descriptor: int, size_bytes: int) -> None:
    """Before candidate code is imported."""
    from torchstone.worker.built_files import unpack

    try:
        unpack(scratch, descriptor, size_bytes)
    except (OSError, ValueError, msgspec.MsgspecError):  # a candidate of this key wrote it: then all is built again
        traceback.print_exc()
    finally:
        os.close(descriptor)


def pack_built(scratch: Path, descriptor: int, room_bytes: int) -> int:
    """How many bytes what was built takes, packed into the memory file."""
    from torchstone.worker.built_files import pack

    try:
        return pack(scratch, descriptor, room_bytes)
    finally:
        os.close(descriptor)


def trace(*what: Any) -> int:
    """Imported late: `tracing` is only needed when a kernel is profiled."""
    from torchstone.worker.profiler_trace import trace as write_trace

    return write_trace(*what)


class _BoundCase:
    """The argument lists of a case's calls, and what became of them."""

    def __init__(self, bind: Bind, memory: Memory, device: torch.device, candidate: Callable[..., Any] | None) -> None:
        self._device = device
        self._outputs = [
            (output, None if output.dtype is None else operators.torch_dtype(output.dtype)) for output in bind.outputs
        ]
        self._memory = memory
        self._arena_bytes = bind.arena_bytes
        recipes = tensors_of(bind.case)
        self._tensors: list[list[torch.Tensor]] = []
        self._bound_as: list[list[tuple[int, tuple[int, ...], tuple[int, ...], torch.dtype]]] = []
        """Address, shape, strides and dtype of each: a call may change those of the tensor that it is given."""
        self._calls: list[tuple[list[Any], dict[str, Any]]] = []
        for index in range(bind.sets):
            tensors = [
                operators.view_of(self._flat(placement, index), recipe)
                for placement, recipe in zip(bind.inputs, recipes, strict=True)
            ]
            self._tensors.append(tensors)
            self._bound_as.append([(t.data_ptr(), tuple(t.shape), t.stride(), t.dtype) for t in tensors])
            self._calls.append(operators.build_arguments(bind.case, tensors, device))
        self._candidate = candidate
        self._pretended_calls: dict[Callable[..., Any], list[PreparedCall]] = {}
        self._prepared = [] if candidate is None else self._prepare(candidate)
        self._kept: list[Any] = []
        """Results of the last calls: the judge reads them where they lie."""
        self.raised_in: int | None = None
        """The call of the last block that raised, if it can be said."""
        self._held: list[Any] = []
        """Results of earlier ones: the judge sees whether they stay as they are."""
        self._recordings: dict[tuple[int, bool, bool], Recording] = {}
        self._links: dict[Chain, Links] = {}
        self._ready_results: list[Any] | None = None
        self._pretended = 0
        self._speck = torch.zeros(1, device=device)
        soil_for(bind.outputs, device)
        if bind.case.timed and device.type == "cpu":
            have_ready(bind.outputs, bind.sets)

    @property
    def arena_address(self) -> int:
        return self._memory.address

    def prepared(self, function: Callable[..., Any]) -> list[PreparedCall]:
        """The calls of this function. What can be bound to its arguments has been, when the case was."""
        if function is self._candidate:
            return self._prepared
        if function not in self._pretended_calls:
            self._pretended_calls[function] = self._prepare(function)
        return self._pretended_calls[function]

    def _prepare(self, function: Callable[..., Any]) -> list[PreparedCall]:
        if isinstance(function, Differentiated | ModelFunction):
            return [PreparedCall(function.bound(args, kwargs), [], {}) for args, kwargs in self._calls]
        return [PreparedCall(function, args, kwargs) for args, kwargs in self._calls]

    def close(self) -> None:
        self._kept.clear()
        self._held.clear()
        self._recordings.clear()
        self._prepared.clear()
        self._pretended_calls.clear()
        if not isinstance(self._memory, OpenedDeviceMemory):
            return
        if self._arena_bytes > KEPT_ARENA_BYTES:
            self._memory.close()
        if torch.cuda.memory_reserved(self._device) > _KEPT_BYTES:
            torch.cuda.empty_cache()  # who waits for his next case needs no memory

    def fetch(self, calls: int) -> None:
        """Arguments of the first calls as the judge wrote them, where they are not in its own memory."""
        if isinstance(self._memory, MirroredMemory):
            self._memory.fetch(self._bytes_of(calls))

    def _deliver(self, calls: int) -> None:
        """And what became of them."""
        if isinstance(self._memory, MirroredMemory):
            self._memory.deliver(self._bytes_of(calls))

    def _bytes_of(self, calls: int) -> int:
        return self._arena_bytes // len(self._calls) * calls

    def _flat(self, placement: Any, index: int) -> torch.Tensor:
        offset = placement.offset_bytes + index * placement.pitch_bytes
        return self._memory.tensor(offset, placement.elements, operators.torch_dtype(placement.dtype))

    def pretend(self, *args: Any, **kwargs: Any) -> Any:
        """A candidate that takes no time: results made beforehand, the arguments themselves where in place."""
        if self._ready_results is None:
            self._begin_pretending()
        assert self._ready_results is not None
        self._pretended = (self._pretended + 1) % len(self._ready_results)
        return self._ready_results[self._pretended - 1]

    def _begin_pretending(self) -> None:
        """From the first call on."""
        if self._ready_results is None:
            self._ready_results = [self._ready_result(index) for index in range(len(self._calls))]
        self._pretended = 0

    def _ready_result(self, index: int) -> Any:
        leaves = [
            self._tensors[index][output.argument]
            if output.argument is not None
            else 0
            if dtype is None
            else torch.zeros(output.shape or (), dtype=dtype, device=self._device)
            for output, dtype in self._outputs
        ]
        return leaves[0] if len(leaves) == 1 else tuple(leaves)

    def keep(self, calls: tuple[int, ...]) -> None:
        """Hold on to what these calls of the last block returned."""
        tensors = sum(dtype is not None and output.argument is None for output, dtype in self._outputs)
        for call in calls:
            self._held += self._kept[call * tensors : (call + 1) * tensors]

    def call(
        self,
        token: str,
        candidate: Callable[..., Any],
        first: int,
        count: int,
        chain: Chain | None = None,
        backward: tuple[int, ...] = (),
        other_shapes: bool = True,
    ) -> Done:
        """Call after call. Nothing but the calls is done between them, unless each is to wait for the one before."""
        self._kept.clear()
        self.raised_in = None
        self.fetch(first + count)
        calls = self.prepared(candidate)[first : first + count]
        link = self._link(chain)
        passes = [call.function for call in calls if backward and isinstance(call.function, Passes)]
        results = []
        began = time.perf_counter_ns()
        if backward and len(passes) == len(calls):
            results = made_apart(passes, backward, other_shapes=other_shapes)
        elif link is None:
            try:
                for function, args, kwargs in calls:
                    results.append(function(*args, **kwargs))
            except BaseException:
                self.raised_in = first + len(results)
                raise
        else:
            for index, (function, args, kwargs) in enumerate(calls, first):
                results.append(function(*args, **kwargs))
                if index + 1 < first + count:
                    link(index, results[-1])
        reply = self._testify(token, first, results)
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        self._deliver(first + count)
        return msgspec.structs.replace(reply, claimed_ns=time.perf_counter_ns() - began)

    def capture(self, command: Capture, candidate: Callable[..., Any]) -> Done:
        """Record the calls as a graph; their results are kept for as long as it may be played."""
        kept = self._kept
        self._kept = []
        try:
            if command.pretend:
                self._begin_pretending()
            calls, link = self.prepared(candidate)[: command.count], self._link(command.chain)
            recording = Recording(calls, self._device, link, called_before=command.pretend)
            reply = self._testify(command.token, 0, recording.results)
            recording.kept = self._kept
        finally:
            self._kept = kept
        self._recordings[command.count, command.pretend, command.chain is not None] = recording
        return reply

    def _link(self, chain: Chain | None) -> Callable[[int, Any], None] | None:
        """What to do between two calls of a chain."""
        if chain is None:
            return None
        if chain not in self._links:
            self._links[chain] = Links(chain, self._device)
        links = self._links[chain]

        def link(index: int, result: Any) -> None:
            found = leading(operators.flatten_outputs(result))
            if found:
                links.follow(found, [self._tensors[index + 1][moved.position] for moved in chain.arguments])

        return link

    def play(self, command: Play) -> Done:
        """The recorded calls, and nothing else."""
        return Done(command.token, self._recordings[command.count, command.pretend, command.chained].play_ns())

    def pretend_on_device(self, *args: Any, **kwargs: Any) -> Any:
        """As :meth:`pretend`; the first call also starts a kernel that does next to nothing, as any graph has one."""
        if self._pretended == 0:
            self._speck.zero_()
        return self.pretend(*args, **kwargs)

    def _testify(self, token: str, first: int, results: list[Any]) -> Done:
        """Where the results lie; or which is not what the operator returns."""
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
        """Where the tensors of one result lie, and its plain values. None: it is not what the operator returns."""
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
        """Or what cannot be told from it: the same elements in the same order."""
        address, shape, strides, dtype = self._bound_as[index][position]
        return (
            self._matches(leaf, Output(None, shape), dtype)
            and leaf.data_ptr() == address
            and same_steps(shape, leaf.stride(), strides)
            and not leaf.is_conj()
            and not leaf.is_neg()
        )

    def _matches(self, leaf: Any, output: Output, dtype: torch.dtype) -> bool:
        """A plain tensor in memory: what a subclass holds, only the subclass knows."""
        return (
            type(leaf) in _PLAIN_TENSORS
            and leaf.dtype is dtype
            and (output.shape is None or leaf.shape == output.shape)
            and leaf.device == self._device
            and leaf.layout is torch.strided
        )

    def _place(self, leaf: torch.Tensor, output: Output) -> ResultAddress:
        lazy = leaf.is_conj() or leaf.is_neg()  # what lies in memory is not yet the value
        if lazy and not (output.fresh and self._is_argument(leaf)):
            leaf = leaf.resolve_conj().resolve_neg()
        if not leaf.is_contiguous() and not self._is_argument(leaf) and _is_sparse(leaf):
            leaf = leaf.contiguous()
        self._kept.append(leaf)
        strides = None if leaf.is_contiguous() else tuple(leaf.stride())
        return ResultAddress(leaf.data_ptr(), strides, tuple(leaf.shape) if output.shape is None else None)

    def _is_argument(self, leaf: torch.Tensor) -> bool:
        return 0 <= leaf.data_ptr() - self._memory.address < self._arena_bytes

    def _segments(self, places: list[tuple[ResultAddress, ...]]) -> tuple[Segment, ...]:
        """The device allocations that these places are in. The arena is the judge's own and needs no handle."""
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
    """Scattered over more memory than the judge reads for it."""
    return span_elements(leaf.shape, leaf.stride()) > MOST_SPARSE * leaf.numel()


_PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter)


def _describe(leaf: Any) -> Leaf:
    if type(leaf) in _PLAIN_TENSORS:
        layout = "" if leaf.layout is torch.strided else f" ({str(leaf.layout).removeprefix('torch.')})"
        return TensorLeaf(str(leaf.dtype).removeprefix("torch.") + layout, tuple(leaf.shape), leaf.device.type)
    if leaf is None or isinstance(leaf, (bool, int, float)):
        return PlainLeaf(sent_plain(leaf))
    return OtherLeaf(type(leaf).__name__[:200])


def _failure(token: str, error: BaseException) -> Failed:
    text = "".join(traceback.format_exception(error))[-MAX_TEXT_CHARACTERS:]
    name = type(error).__name__
    message = f"{name}: {error}"[:MAX_TEXT_CHARACTERS] if str(error) else name
    if isinstance(error, SystemExit):
        return Failed(token, "exit", f"called sys.exit({error.code!r})"[:MAX_TEXT_CHARACTERS], text)
    if isinstance(error, NotImplementedError):
        return Failed(token, "unsupported", message, text)
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error):
        return Failed(token, "memory", message, text)
    if isinstance(error, torch.AcceleratorError) if hasattr(torch, "AcceleratorError") else "CUDA error" in str(error):
        return Failed(token, "device", message, text)
    return Failed(token, "exception", message, text)
