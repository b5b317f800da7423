"""The witness stand: one worker bound to one case, with the judge's buffers between them.

Lays the arguments of many calls out in an arena, fills it with fresh values and garbage, lets the worker call, and
takes a private copy of arguments and results before anything is compared: what the worker writes later changes nothing.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch

from torchstone import operators, schema
from torchstone.judging import DrawnCall, Expected
from torchstone.schema import Attribution
from torchstone.workers.buffers import make_arena
from torchstone.workers.handle import BadReplyError, Worker, WorkerEndedError
from torchstone.workers.protocol import (
    MOST_SPARSE,
    Attribute,
    Attributed,
    Bind,
    Bound,
    Call,
    Done,
    Failed,
    Output,
    Place,
    Placement,
    Release,
    span_elements,
)
from torchstone.workers.reading import Span, UnreadableError, open_reader

_ALIGNMENT = 512
_BAND_BYTES = 512
"""Between any two buffers, before the first and behind the last."""
_GARBAGE_SHIFT_BYTES = 64 << 10


class CandidateFailedError(Exception):
    """The candidate raised; the worker reported it."""

    def __init__(self, failure: Failed) -> None:
        super().__init__(failure.message)
        self.failure = failure


class View(NamedTuple):
    """Where a result that is a view of an argument lies within a row, and how."""

    offset_bytes: int
    strides: tuple[int, ...]
    argument: int


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
        self.outputs = expected.outputs
        self.new_tensors = [output for output in self.outputs if _is_new_tensor(output)]
        """Those of the outputs that lie somewhere in the candidate's memory."""
        self._new_bytes: int = sum(output.native.nbytes for output in self.new_tensors)
        self.pitch_bytes = self._end
        self.views = self._find_views(expected.call) if operators.is_view(case.operator) else []
        """Where each of the new tensors must lie, if the operator promises views of its arguments."""

    def _find_views(self, call: DrawnCall) -> list[View | None]:
        """What torch's own operator makes of these arguments."""
        result = operators.resolve(call.case.operator)(*call.args, **call.kwargs)
        return [self._view(leaf, call) for leaf in operators.flatten_outputs(result)]

    def _view(self, leaf: torch.Tensor, call: DrawnCall) -> View | None:
        for argument, ((place, _), tensor) in enumerate(zip(self._inputs, call.tensors, strict=True)):
            offset = leaf.data_ptr() - tensor.storage.data_ptr()
            if leaf.numel() and 0 <= offset < tensor.storage.nbytes:
                return View(place[0] + offset, leaf.stride(), argument)
        return None

    def _place(self, elements: int, dtype: torch.dtype) -> tuple[int, int, torch.dtype]:
        offset = self._end
        used = offset + elements * dtype.itemsize
        self._end = -(-used // _ALIGNMENT) * _ALIGNMENT + _BAND_BYTES
        self.bands.append((used, self._end))
        return offset, elements, dtype

    def input_placements(self) -> tuple[Placement, ...]:
        return tuple(self._placement(place) for place, _ in self._inputs)

    def declared_outputs(self) -> tuple[Output, ...]:
        return tuple(
            Output(
                _dtype_name(output.native) if isinstance(output.native, torch.Tensor) else None,
                tuple(output.native.shape) if isinstance(output.native, torch.Tensor) else (),
                output.is_argument,
            )
            for output in self.outputs
        )

    def _placement(self, place: tuple[int, int, torch.dtype]) -> Placement:
        offset, elements, dtype = place
        return Placement(offset, self.pitch_bytes, elements, str(dtype).removeprefix("torch."))

    def inputs_in(self, memory: torch.Tensor, index: int) -> list[torch.Tensor]:
        """The flat storages of a call's tensor arguments within a copy of the arena."""
        return [_slice(memory, index * self.pitch_bytes, place) for place, _ in self._inputs]

    def argument_at(self, offset: int) -> int | None:
        """The tensor argument that lies at this offset of the arena."""
        within = offset % self.pitch_bytes
        for position, ((begin, elements, dtype), _) in enumerate(self._inputs):
            if begin <= within < begin + elements * dtype.itemsize:
                return position
        return None

    def outputs_in(self, memory: torch.Tensor, index: int, new: Sequence[Any], plain: Sequence[Any]) -> list[Any]:
        """A call's returned leaves: arguments from a copy of the arena, the others as they were read and told."""
        tensors, values = iter(new), iter(plain)
        leaves: list[Any] = []
        for output in self.outputs:
            if output.is_argument is not None:
                argument, recipe = self._inputs[output.is_argument]
                leaves.append(operators.view_of(_slice(memory, index * self.pitch_bytes, argument), recipe))
            else:
                leaves.append(next(tensors) if _is_new_tensor(output) else next(values, None))
        return leaves

    @property
    def written_bytes(self) -> int:
        """Bytes that a call must write: its fresh results. Views and arguments that are returned count nothing."""
        return 0 if self._is_view else self._new_bytes

    @property
    def bytes_per_call(self) -> int:
        """Bytes of all tensors of a call, without padding."""
        inputs = sum(elements * dtype.itemsize for (_, elements, dtype), _ in self._inputs)
        return inputs + self._new_bytes

    @property
    def footprint_bytes(self) -> int:
        """What one call takes of the memory that is set aside for a block: its arguments and its results."""
        return self.pitch_bytes + self._new_bytes


def _is_new_tensor(output: Any) -> bool:
    return output.is_argument is None and isinstance(output.native, torch.Tensor)


def _dtype_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _slice(memory: torch.Tensor, base: int, place: tuple[int, int, torch.dtype]) -> torch.Tensor:
    offset, elements, dtype = place
    start = base + offset
    return memory[start : start + elements * dtype.itemsize].view(dtype)


class Testimony:
    """What a block of calls left behind, in the judge's own memory."""

    def __init__(self, layout: Layout, done: Done, count: int, arena: torch.Tensor, arena_address: int) -> None:
        self._layout = layout
        self._arena_address = arena_address
        self.done = done
        self.count = count
        self.arena = arena
        self.elapsed_ns = 0
        self.hidden_alias: int | None = None
        """A call whose arguments changed when its results were overwritten, wherever it said that they lie."""
        _check_counts(done, count, len(layout.new_tensors))
        self._new: list[list[Any]] = [[None] * len(layout.new_tensors) for _ in range(count)]
        self.spans: list[Span] = []
        """What is to be read from the worker: results with elements that do not lie in the arena."""
        self._read: list[tuple[int, int]] = []
        self.copies: Iterable[torch.Tensor] = ()
        for index, places in enumerate(done.places):
            for position, place in enumerate(places):
                self._note(index, position, place)

    def _note(self, index: int, position: int, place: Place) -> None:
        native = self._layout.new_tensors[position].native
        size_bytes = _span_bytes(place, native)
        offset = place.address - self._arena_address
        if size_bytes == 0:
            self._new[index][position] = torch.empty_like(native)
        elif 0 <= offset < self.arena.numel():
            if offset + size_bytes > self.arena.numel():
                raise BadReplyError("a result that begins in an argument and ends nowhere")
            self._new[index][position] = _seen_as(self.arena[offset : offset + size_bytes].clone(), place, native)
        elif size_bytes > MOST_SPARSE * native.nbytes:
            raise BadReplyError("a result that is scattered over more memory than is read")
        else:
            self.spans.append(Span(place.address, size_bytes))
            self._read.append((index, position))

    def unpack(self) -> None:
        """See what was copied as tensors. Apart from copying, which is on the clock where there is a device."""
        for (index, position), copy in zip(self._read, self.copies, strict=True):
            place, native = self.done.places[index][position], self._layout.new_tensors[position].native
            self._new[index][position] = _seen_as(copy, place, native)

    def outputs(self, index: int) -> list[Any]:
        """The leaves that a call returned."""
        plain = self.done.plain_values[index] if self.done.plain_values else ()
        return self._layout.outputs_in(self.arena, index, self._new[index], plain)

    def inputs_after(self, index: int) -> list[torch.Tensor]:
        """The storages of a call's tensor arguments as they were when it was over."""
        return self._layout.inputs_in(self.arena, index)

    def alias(self) -> tuple[int, str] | None:
        """A call whose results are not memory of their own although the operator promises it, and how."""
        seen: dict[int, tuple[int, int]] = {}
        for index, places in enumerate(self.done.places):
            for position, (place, output) in enumerate(zip(places, self._layout.new_tensors, strict=True)):
                if not output.fresh or output.native.numel() == 0:
                    continue
                argument = self._argument_at(place.address)
                if argument is not None:
                    return (
                        index,
                        f"output {position} lies in the memory of tensor argument {argument}; expected a new tensor",
                    )
                call, earlier = seen.setdefault(place.address, (index, position))
                if call != index:
                    return (
                        index,
                        f"output {position} of two calls lies in the same memory; expected a new tensor each time",
                    )
                if earlier != position:
                    return index, f"outputs {earlier} and {position} lie in the same memory; expected two tensors"
        if self._layout.views:
            return self._no_view()
        if self.hidden_alias is not None:
            return self.hidden_alias, "overwriting its result changes an argument; expected a new tensor"
        return None

    def _no_view(self) -> tuple[int, str] | None:
        """A call that returned something else than the view that the operator promises, and what."""
        for index, places in enumerate(self.done.places):
            for position, (place, view) in enumerate(zip(places, self._layout.views, strict=True)):
                if view is None:
                    continue
                native = self._layout.new_tensors[position].native
                offset = place.address - self._arena_address - index * self._layout.pitch_bytes
                strides = operators.contiguous_strides(native.shape) if place.strides is None else place.strides
                if offset != view.offset_bytes or not _same_steps(native.shape, strides, view.strides):
                    return index, f"output {position} is no view of tensor argument {view.argument}; expected that view"
        return None

    def _argument_at(self, address: int) -> int | None:
        offset = address - self._arena_address
        return self._layout.argument_at(offset) if 0 <= offset < self.arena.numel() else None


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


def _span_bytes(place: Place, native: torch.Tensor) -> int:
    """Bytes from the first element of a result to its last."""
    if native.numel() == 0:
        return 0
    if place.strides is None:
        return native.nbytes
    if len(place.strides) != native.dim() or any(stride < 0 for stride in place.strides):
        raise BadReplyError("strides that no tensor of this shape has")
    return span_elements(native.shape, place.strides) * native.dtype.itemsize


def _same_steps(shape: Sequence[int], one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether strides mean the same: along a dimension of one element any stride does."""
    return all(size == 1 or a == b for size, a, b in zip(shape, one, other, strict=True))


def _seen_as(copy: torch.Tensor, place: Place, native: torch.Tensor) -> torch.Tensor:
    """The tensor in a copy of its bytes."""
    if copy.storage_offset() % native.dtype.itemsize:
        copy = copy.clone()
    flat = copy.view(native.dtype)
    if place.strides is None:
        return flat.view(native.shape)
    return flat.as_strided(native.shape, place.strides, flat.storage_offset())


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
        largest = max((MOST_SPARSE * output.native.nbytes for output in layout.new_tensors), default=0)
        self._garbage = _garbage(max(layout.pitch_bytes, largest), device)
        self._row = self._garbage
        self._arena_address = 0
        if worker.reader is None:
            worker.reader = open_reader(worker.pid, device)
        self._reader = worker.reader

    def bind(self, deadline: float) -> None:
        """Give the worker its view of the buffers."""
        command = Bind(
            secrets.token_hex(8),
            self._case,
            self.sets,
            self.layout.input_placements(),
            self.layout.declared_outputs(),
            self._arena.size_bytes,
            self._arena.device_handle,
        )
        descriptor = self._arena.descriptor if self._arena.device_handle is None else None
        reply = self.worker.ask(command, deadline, descriptor)
        self.worker.freeze()
        if isinstance(reply, Failed):
            raise CandidateFailedError(reply)
        if not isinstance(reply, Bound):
            raise BadReplyError(f"expected the case to be bound, got {type(reply).__name__}")
        self._arena_address = reply.arena_address

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

    def call(self, count: int, deadline: float, pretend: bool = False) -> Testimony:
        """Let the worker make the first ``count`` calls; the judge's clock runs as long as the worker does.

        It starts before the worker is let go and stops when every process of it stands still again: there is no
        moment in which a candidate could work off the clock, before the command or after the reply. A device does not
        stop with its process, so there the clock runs until the judge holds its copy of the results instead: work that
        is still under way is either on the clock or not in the copy. What this costs is the same for every party.
        """
        command = Call(secrets.token_hex(8), 0, count, pretend)
        on_device = self._device.type != "cpu"
        self.worker.post(command, deadline)
        began = time.perf_counter_ns()
        self.worker.thaw()
        reply = self.worker.answer_to(command, deadline)
        if not on_device:
            self.worker.freeze()
            elapsed_ns = time.perf_counter_ns() - began
        if isinstance(reply, Failed):
            raise CandidateFailedError(reply)
        if not isinstance(reply, Done):
            raise BadReplyError(f"expected the calls to be done, got {type(reply).__name__}")
        testimony = self._take_down(reply, count)
        if on_device:
            self._finish_device_work()
            elapsed_ns = time.perf_counter_ns() - began
            self.worker.freeze()
        testimony.elapsed_ns = elapsed_ns
        testimony.unpack()
        self._take_back(testimony)
        return testimony

    def _take_down(self, done: Done, count: int) -> Testimony:
        """A private copy of everything that the calls left: arguments from the arena, results from where they lie."""
        arena = self._bytes[: count * self.layout.pitch_bytes].clone()
        testimony = Testimony(self.layout, done, count, arena, self._arena_address)
        if testimony.spans:
            try:
                testimony.copies = self._reader.read(testimony.spans, done.segments)
            except UnreadableError as error:
                raise BadReplyError(f"a result that cannot be read: {error}") from error
        return testimony

    def _take_back(self, testimony: Testimony) -> None:
        """Overwrite results that have been read, as their owner may, and see whether an argument changed with them."""
        if not testimony.spans:
            return
        shift = secrets.randbelow(_GARBAGE_SHIFT_BYTES)
        try:
            self._reader.overwrite(testimony.spans, self._garbage[shift:])
        except UnreadableError as error:
            raise BadReplyError(f"a result in memory that cannot be written: {error}") from error
        self._finish_device_work()
        if self._device.type != "cpu" or not any(output.fresh for output in self.layout.new_tensors):
            return  # a device allocation of the worker's is not the arena: the driver exports no memory twice
        index = secrets.randbelow(testimony.count)
        pitch = self.layout.pitch_bytes
        row = slice(index * pitch, (index + 1) * pitch)
        if not torch.equal(self._bytes[row], testimony.arena[row]):
            testimony.hidden_alias = index

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

    def device_latency_ns(self) -> int:
        """How long the judge waits for next to nothing on the device: long, if someone else keeps it busy."""
        began = time.perf_counter_ns()
        self._row[:1].clone()
        self._finish_device_work()
        return time.perf_counter_ns() - began

    def overrun(self, testimony: Testimony) -> str | None:
        """What was written outside every buffer, if anything: the bytes between them are no longer as they were."""
        rows = testimony.arena.view(testimony.count, self.layout.pitch_bytes)
        torn = [(rows[:, start:end] != self._row[start:end]).any() for start, end in self.layout.bands]
        found = torch.stack(torn).tolist()
        if not any(found):
            return None
        torn_band = found.index(True)
        where = f"behind tensor argument {torn_band - 1}" if torn_band else "before the first tensor argument"
        return f"bytes {where} were changed, which belong to no buffer"

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
