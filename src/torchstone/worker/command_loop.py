"""Main loop of a worker, the process that runs candidate code: answers the judge's commands, one after another.

After :class:`Load` this code shares its address space with the candidate, and is therefore not trusted. Every check
that must hold against a dishonest kernel is made outside, in the judge.
"""

from __future__ import annotations

import contextlib
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

from torchstone.isolation import sandbox
from torchstone.protocol.commands import (
    Attribute,
    Bind,
    Build,
    Call,
    Capture,
    Collect,
    Command,
    Copy,
    Load,
    Open,
    Play,
    Release,
    Trace,
    UncheckedCalls,
)
from torchstone.protocol.reference_model_messages import CallModel, FetchResults, MakeWeights
from torchstone.protocol.replies import Armed, Attributed, Bound, Collected, Done, Ready, Reply, Traced
from torchstone.protocol.shared_memory import HostMemory, Memory, MirroredMemory, OpenedDeviceMemory
from torchstone.protocol.tensor_places import KEPT_ARENA_BYTES
from torchstone.worker.attribution import attribute
from torchstone.worker.bound_case import BoundCase
from torchstone.worker.command_channel import CommandChannel
from torchstone.worker.failure_replies import failure_reply
from torchstone.worker.process_setup import choose_device, move_caches, open_device, redirect_output
from torchstone.worker.result_copying import ResultCopier


def main(cell: sandbox.Cell, readable: tuple[str, ...], commands: int, replies: int, log: int) -> NoReturn:
    """Enter the sandbox, open the device, and answer commands until the judge closes the socket. Exits the process."""
    redirect_output(log)
    sandbox.restrict_process(cell, readable)
    scratch = Path(cell.scratch)
    move_caches(scratch, cell.policy.device_type)
    torch.set_num_threads(cell.policy.threads)
    device = choose_device(cell.policy)
    if cell.policy.device_at_start:
        open_device(device)
    channel = CommandChannel(socket.socket(fileno=commands), replies)
    channel.send(Ready(cell.layers))
    _Server(channel, device, scratch).serve()
    os._exit(0)


_Calling = Call | UncheckedCalls | Capture | Attribute | Trace
"""Commands that call the candidate or the shim."""


class _Server:
    def __init__(self, channel: CommandChannel, device: torch.device, scratch: Path) -> None:
        self._channel = channel
        self._device = device
        self._scratch = scratch
        self._candidate: Callable[..., Any] | None = None
        self._bound: BoundCase | None = None
        self._kept_memory: dict[str, OpenedDeviceMemory] = {}
        self._copier = ResultCopier(device)
        self._models: Any = None
        """Answers commands about a problem's model. Created when the first such command arrives."""
        self._framing_ns: dict[int, int] = {}
        """By number of calls in a block: how long it took to encode the last reply about a block of shim calls."""

    def _memory(self, bind: Bind, descriptor: int | None) -> Memory:
        """The memory that the judge shares for a case. Small device memory is used for several cases and stays open."""
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
        """Answer a command about a problem's model. The module is imported late, as candidates do not need it."""
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
                reply = msgspec.structs.replace(failure_reply(command.token, error), call=raised_in)
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(OSError, ValueError, AttributeError):
                    stream.flush()
            if isinstance(command, Call) and command.pretend and isinstance(reply, Done):
                self._send_shim_reply(command, reply)
            else:
                self._channel.send(reply)

    def _send_shim_reply(self, command: Call, reply: Done) -> None:
        """Send a reply about shim calls. Its time covers all work for the command, from receiving to encoding.

        The time covers all of that because a candidate could do all of it more quickly. Encoding is assumed to take as
        long as it did for the last block with this number of calls.
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
                open_device(self._device)
                return Done(token)
            case Bind(token=token):
                self._bound = BoundCase(command, self._memory(command, descriptor), self._device, self._candidate)
                return Bound(token, self._bound.arena_address)
            case Release(token=token):
                if self._bound is not None:
                    self._bound.close()
                    self._bound = None
                return Done(token)
            case Copy(token=token):
                self._copier.copy(command, descriptor)
                return Done(token)
            case CallModel() | MakeWeights() | FetchResults():
                return self._model_calls(command, descriptor)
            case Play(token=token):
                self._channel.send(Armed(token))
                self._channel.await_go()
                return self._case.play(command)
            case Attribute() | Trace() | Call() | UncheckedCalls() | Capture():
                return self._make_calls(command, self._case, descriptor)

    @property
    def _case(self) -> BoundCase:
        assert self._bound is not None, "a call before Bind"
        return self._bound

    def _make_calls(self, command: _Calling, case: BoundCase, descriptor: int | None) -> Reply:
        """Answer a command that calls the candidate or the shim."""
        candidate = self._candidate
        assert candidate is not None, "a call before Load"
        match command:
            case Call(token=token, first=first, count=count, pretend=pretend, keep=keep, chain=chain):
                case.keep(keep)
                called = case.shim.call if pretend else candidate
                if command.repeats > 1:
                    return case.repeat(token, called, command.repeats)
                backward, others = command.backward, not command.stated_shapes
                return case.call(token, called, first, count, chain, backward, others)
            case UncheckedCalls(token=token, blocks=blocks, count=count, keep=keep):
                case.keep(keep)
                for _ in range(blocks):  # like a compared block: a kernel cannot tell the difference
                    case.call(token, candidate, 0, count)
                return Done(token)
            case Capture(pretend=pretend):
                return case.capture(command, case.shim.call_on_device if pretend else candidate)
            case Attribute(token=token, kernels=kernels):
                case.fetch(1)
                function, args, kwargs = case.prepared(candidate)[0]
                return Attributed(token, attribute(function, args, kwargs, kernels and self._device.type == "cuda"))
            case Trace(token=token, sets=sets):
                assert descriptor is not None, "Trace without memory"
                case.fetch(sets)
                return Traced(token, trace(case.prepared(candidate)[:sets], command, descriptor, self._device))


def load_candidate(implementation: Any, scratch: Path) -> Callable[..., Any]:
    """Load a candidate. `loading` is imported late: only a worker with a candidate needs it."""
    from torchstone.worker.loading import load

    return load(implementation, scratch)


def build_candidate() -> None:
    """Compile the candidate's native source. `building` is imported late: few candidates need it."""
    from torchstone.worker.building import build_all

    build_all()


def unpack_built(scratch: Path, descriptor: int, size_bytes: int) -> None:
    """Restore files that earlier workers of this candidate built. Runs before candidate code is imported."""
    from torchstone.worker.built_files import unpack

    try:
        unpack(scratch, descriptor, size_bytes)
    except (OSError, ValueError, msgspec.MsgspecError):  # the candidate wrote bad data: build all again
        traceback.print_exc()
    finally:
        os.close(descriptor)


def pack_built(scratch: Path, descriptor: int, room_bytes: int) -> int:
    """Pack the candidate's compiled files into the memory file; return how many bytes were written."""
    from torchstone.worker.built_files import pack

    try:
        return pack(scratch, descriptor, room_bytes)
    finally:
        os.close(descriptor)


def trace(*what: Any) -> int:
    """Trace calls of the candidate. `profiler_trace` is imported late: only profiling needs it."""
    from torchstone.worker.profiler_trace import trace as write_trace

    return write_trace(*what)
