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
from torchstone.workers.buffers import make_arena
from torchstone.workers.handle import Worker, WorkerEndedError
from torchstone.workers.protocol import Bind, Call, Done, Failed, OutputPlacement, Placement, Release

_ALIGNMENT = 512
_GARBAGE_SHIFT_BYTES = 64 << 10


class CandidateFailedError(Exception):
    """The candidate raised; the worker reported it."""

    def __init__(self, failure: Failed) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Layout:
    """Where each tensor of a call lies. Calls follow one another at a fixed pitch."""

    def __init__(self, case: schema.Case, expected: Expected) -> None:
        self._end = 0
        recipes = schema.tensors_of(case)
        self._inputs = [
            (self._place(operators.storage_extent(recipe), operators.torch_dtype(recipe.dtype)), recipe)
            for recipe in recipes
        ]
        self.outputs_begin_bytes = self._end
        """Inputs lie before, results after."""
        self._outputs = [self._place_output(output) for output in expected.outputs]
        self.pitch_bytes = max(self._end, _ALIGNMENT)

    def _place(self, elements: int, dtype: torch.dtype) -> tuple[int, int, torch.dtype]:
        offset = self._end
        size = elements * dtype.itemsize
        self._end += -(-max(size, 1) // _ALIGNMENT) * _ALIGNMENT
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
    def input_places(self) -> list[tuple[int, int, torch.dtype]]:
        return [place for place, _ in self._inputs]

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
        self._garbage = _garbage(layout.pitch_bytes - layout.outputs_begin_bytes, device)

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
        if isinstance(reply, Failed):
            raise CandidateFailedError(reply)

    def present(self, calls: Sequence[DrawnCall]) -> None:
        """Write the calls' inputs into the buffers, and random garbage wherever results will go."""
        rows = self._bytes[: len(calls) * self.layout.pitch_bytes].view(len(calls), self.layout.pitch_bytes)
        results = rows[:, self.layout.outputs_begin_bytes :]
        shift = secrets.randbelow(_GARBAGE_SHIFT_BYTES)
        results.copy_(self._garbage[shift : shift + results.shape[1]])
        targets = [slot for index in range(len(calls)) for slot in self._slots[index] if slot.numel()]
        sources = [tensor.storage for call in calls for tensor in call.tensors if tensor.storage.numel()]
        if targets:
            torch._foreach_copy_(targets, sources)
        self._finish_device_work()

    def call(self, count: int, deadline: float, pretend: bool = False) -> tuple[Done, int]:
        """Let the worker make the first ``count`` calls; the judge's clock runs from command to reply."""
        command = Call(secrets.token_hex(8), 0, count, pretend)
        began = time.perf_counter_ns()
        reply = self.worker.ask(command, deadline)
        elapsed_ns = time.perf_counter_ns() - began
        if not isinstance(reply, Done):
            assert isinstance(reply, Failed)
            raise CandidateFailedError(reply)
        return reply, elapsed_ns

    def testimony(self, count: int) -> torch.Tensor:
        """A private copy of what the buffers hold after ``count`` calls."""
        copy = self._bytes[: count * self.layout.pitch_bytes].clone()
        self._finish_device_work()
        return copy

    def _finish_device_work(self) -> None:
        """The judge's own device work must be over before the worker's clock starts, and before a copy is read."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def release(self, deadline: float) -> None:
        """Have the worker let go of the buffers, so that it can be bound to another case."""
        reply = self.worker.ask(Release(secrets.token_hex(8)), deadline)
        if isinstance(reply, Failed):
            raise WorkerEndedError(None)

    def close(self) -> None:
        """Free the buffers. The worker must have released them or be dead."""
        self._slots.clear()
        del self._bytes
        self._arena.close()
