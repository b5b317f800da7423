"""The witness stand: one worker bound to one case, with the judge's buffers between them.

Lays the tensors of many calls out in an arena, fills it with fresh values and garbage, lets the worker call, and
takes a private copy of everything before anything is compared: what the worker writes later changes nothing.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import Any

import torch

from torchstone import operators, schema
from torchstone.judging import DrawnCall, Expected
from torchstone.schema import Attribution
from torchstone.workers.buffers import make_arena
from torchstone.workers.handle import BadReplyError, Worker, WorkerEndedError
from torchstone.workers.protocol import (
    Attribute,
    Attributed,
    Bind,
    Call,
    Done,
    Failed,
    OutputPlacement,
    Placement,
    Release,
)

_ALIGNMENT = 512
_BAND_BYTES = 512
"""Between any two buffers, before the first and behind the last."""
_GARBAGE_SHIFT_BYTES = 64 << 10


class CandidateFailedError(Exception):
    """The candidate raised; the worker reported it."""

    def __init__(self, failure: Failed) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Layout:
    """Where each tensor of a call lies. Calls follow one another at a fixed pitch."""

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
        self._outputs = [self._place_output(output) for output in expected.outputs]
        self.pitch_bytes = self._end

    def _place(self, elements: int, dtype: torch.dtype) -> tuple[int, int, torch.dtype]:
        offset = self._end
        used = offset + elements * dtype.itemsize
        self._end = -(-used // _ALIGNMENT) * _ALIGNMENT + _BAND_BYTES
        self.bands.append((used, self._end))
        return offset, elements, dtype

    def _place_output(self, output: Any) -> tuple[tuple[int, int, torch.dtype] | None, Any]:
        if output.is_argument is not None or not isinstance(output.native, torch.Tensor):
            return None, output
        return self._place(output.native.numel(), output.native.dtype), output

    def input_placements(self) -> tuple[Placement, ...]:
        return tuple(self._placement(place) for place, _ in self._inputs)

    def output_placements(self) -> tuple[OutputPlacement, ...]:
        return tuple(
            OutputPlacement(
                None if place is None else self._placement(place),
                () if place is None else tuple(output.native.shape),
                output.is_argument,
                output.fresh,
            )
            for place, output in self._outputs
        )

    def _placement(self, place: tuple[int, int, torch.dtype]) -> Placement:
        offset, elements, dtype = place
        return Placement(offset, self.pitch_bytes, elements, str(dtype).removeprefix("torch."))

    def inputs_in(self, memory: torch.Tensor, index: int) -> list[torch.Tensor]:
        """The flat storages of a call's tensor arguments within a copy of the arena."""
        return [_slice(memory, index * self.pitch_bytes, place) for place, _ in self._inputs]

    def outputs_in(self, memory: torch.Tensor, index: int, plain: Sequence[Any]) -> list[Any]:
        """A call's returned leaves within a copy of the arena; plain values are taken from the reply."""
        values = iter(plain)
        leaves: list[Any] = []
        for place, output in self._outputs:
            if output.is_argument is not None:
                argument, recipe = self._inputs[output.is_argument]
                leaves.append(operators.view_of(_slice(memory, index * self.pitch_bytes, argument), recipe))
            elif place is None:
                leaves.append(next(values, None))
            else:
                leaves.append(_slice(memory, index * self.pitch_bytes, place).view(output.native.shape))
        return leaves

    @property
    def names(self) -> list[str]:
        """What each buffer holds, in the order in which they lie."""
        inputs = [f"tensor argument {position}" for position in range(len(self._inputs))]
        return inputs + [f"output {position}" for position, (place, _) in enumerate(self._outputs) if place is not None]

    @property
    def written_bytes(self) -> int:
        """Bytes that a call must write: its fresh results. Views and arguments that are returned count nothing."""
        if self._is_view:
            return 0
        places = [place for place, _ in self._outputs if place is not None]
        return sum(elements * dtype.itemsize for _, elements, dtype in places)

    @property
    def bytes_per_call(self) -> int:
        """Bytes of all tensors of a call, without padding."""
        places = [place for place, _ in (*self._inputs, *self._outputs) if place is not None]
        return sum(elements * dtype.itemsize for _, elements, dtype in places)


def _slice(memory: torch.Tensor, base: int, place: tuple[int, int, torch.dtype]) -> torch.Tensor:
    offset, elements, dtype = place
    start = base + offset
    return memory[start : start + elements * dtype.itemsize].view(dtype)


def _garbage(size_bytes: int, device: torch.device) -> torch.Tensor:
    """Random bytes to put where results will go, with room to start at another one each time.

    Not NaN and not constant: a poison that can be recognised tells a candidate what is unwritten.
    """
    seed = torch.frombuffer(bytearray(secrets.token_bytes(_GARBAGE_SHIFT_BYTES)), dtype=torch.uint8).to(device)
    repeats = 1 + -(-size_bytes // _GARBAGE_SHIFT_BYTES)
    return seed.repeat(repeats)


class Stand:
    """A worker, a case, and the buffers of up to ``sets`` calls."""

    def __init__(self, worker: Worker, case: schema.Case, layout: Layout, sets: int, device: torch.device) -> None:
        self.worker = worker
        self.sets = sets
        self.layout = layout
        self._case = case
        self._device = device
        self._arena = make_arena(sets * layout.pitch_bytes, device)
        self._bytes = self._arena.tensor(0, sets * layout.pitch_bytes, torch.uint8)
        self._slots = [layout.inputs_in(self._bytes, index) for index in range(sets)]
        self._garbage = _garbage(layout.pitch_bytes, device)
        self._row = self._garbage
        self._testimony = self._garbage[:0]

    def bind(self, deadline: float) -> None:
        """Give the worker its view of the buffers."""
        command = Bind(
            secrets.token_hex(8),
            self._case,
            self.sets,
            self.layout.input_placements(),
            self.layout.output_placements(),
            self._arena.size_bytes,
            self._arena.device_handle,
        )
        descriptor = self._arena.descriptor if self._arena.device_handle is None else None
        reply = self.worker.ask(command, deadline, descriptor)
        self.worker.freeze()
        if isinstance(reply, Failed):
            raise CandidateFailedError(reply)

    def present(self, calls: Sequence[DrawnCall]) -> None:
        """Write the calls' inputs into the buffers, and random garbage where results will go and in between."""
        rows = self._bytes[: len(calls) * self.layout.pitch_bytes].view(len(calls), self.layout.pitch_bytes)
        shift = secrets.randbelow(_GARBAGE_SHIFT_BYTES)
        self._row = self._garbage[shift : shift + self.layout.pitch_bytes]
        rows.copy_(self._row)
        targets = [slot for index in range(len(calls)) for slot in self._slots[index] if slot.numel()]
        sources = [tensor.storage for call in calls for tensor in call.tensors if tensor.storage.numel()]
        if targets:
            torch._foreach_copy_(targets, sources)
        self._finish_device_work()

    def call(self, count: int, deadline: float, pretend: bool = False) -> tuple[Done, int]:
        """Let the worker make the first ``count`` calls; the judge's clock runs as long as the worker does.

        It starts before the worker is let go and stops when every process of it stands still again: there is no
        moment in which a candidate could work off the clock, before the command or after the reply. A device does not
        stop with its process, so there the clock runs until the judge holds its copy of the buffers instead: work that
        is still under way is either on the clock or not in the copy. What this costs is the same for every party.
        """
        command = Call(secrets.token_hex(8), 0, count, pretend)
        began = time.perf_counter_ns()
        self.worker.thaw()
        reply = self.worker.ask(command, deadline)
        on_device = self._device.type != "cpu"
        if on_device:
            self._testimony = self._copy(count)
        else:
            self.worker.freeze()
        elapsed_ns = time.perf_counter_ns() - began
        if on_device:
            self.worker.freeze()
        else:
            self._testimony = self._copy(count)
        if isinstance(reply, Failed):
            raise CandidateFailedError(reply)
        if not isinstance(reply, Done):
            raise BadReplyError(f"expected the calls to be done, got {type(reply).__name__}")
        return reply, elapsed_ns

    def attribute(self, deadline: float, with_kernels: bool) -> Attribution | Failed:
        """Have the worker tell what did the work of one call."""
        self.worker.thaw()
        reply = self.worker.ask(Attribute(secrets.token_hex(8), with_kernels), deadline)
        self.worker.freeze()
        if isinstance(reply, Failed):
            return reply
        if not isinstance(reply, Attributed):
            raise BadReplyError(f"expected an attribution, got {type(reply).__name__}")
        return reply.attribution

    @property
    def testimony(self) -> torch.Tensor:
        """A private copy of what the buffers held when the last block was over."""
        return self._testimony

    def _copy(self, count: int) -> torch.Tensor:
        copy = self._bytes[: count * self.layout.pitch_bytes].clone()
        self._finish_device_work()
        return copy

    def device_latency_ns(self) -> int:
        """How long the judge waits for next to nothing on the device: long, if someone else keeps it busy."""
        began = time.perf_counter_ns()
        self._row[:1].clone()
        self._finish_device_work()
        return time.perf_counter_ns() - began

    def overrun(self, testimony: torch.Tensor, count: int) -> str | None:
        """What was written outside every buffer, if anything: the bytes between them are no longer as they were."""
        rows = testimony.view(count, self.layout.pitch_bytes)
        torn = [(rows[:, start:end] != self._row[start:end]).any() for start, end in self.layout.bands]
        found = torch.stack(torn).tolist()
        if not any(found):
            return None
        names = ["the first buffer", *self.layout.names]
        where = names[found.index(True)]
        return f"bytes {'before' if found[0] else 'behind'} {where} were changed, which belong to no buffer"

    def _finish_device_work(self) -> None:
        """The judge's own device work must be over before the worker's clock starts, and before a copy is read."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def release(self, deadline: float) -> None:
        """Have the worker let go of the buffers, so that it can be bound to another case."""
        self.worker.thaw()
        reply = self.worker.ask(Release(secrets.token_hex(8)), deadline)
        if isinstance(reply, Failed):
            raise WorkerEndedError(None)

    def close(self) -> None:
        """Free the buffers. The worker must have released them or be dead."""
        self._slots.clear()
        del self._bytes
        self._arena.close()
