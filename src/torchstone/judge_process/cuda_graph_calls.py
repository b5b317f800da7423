"""Has a worker record calls as a CUDA graph, and replays them again and again on new values.

The kernels of a graph follow each other without a launch in between. So the time of a block is the device's, not the
host's. The addresses of the results are known before the calls are made.

The judge's clock stops when the judge has read a few thousand bytes of the results, at random places. It reads the
whole results later, and they must hold the same bytes there. So work that continues after the reply is detected, and
the copy of all results is not timed.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TypeVar

import numpy as np
import torch

from torchstone.chain import Chain
from torchstone.judge_process.block_guards import PLACE_GUARDS, GuardFinding
from torchstone.judge_process.block_results import BlockResults
from torchstone.judge_process.bound_worker import BoundWorker
from torchstone.judge_process.candidate_failures import CandidateFailedError
from torchstone.judging import UncapturableError
from torchstone.measuring.long_block_experiment import Times
from torchstone.protocol.commands import Capture, Play
from torchstone.protocol.replies import Armed, Done, Failed, Reply
from torchstone.protocol.shared_memory import DeviceMemory
from torchstone.protocol.tensor_places import span_elements
from torchstone.supervisor.result_reading import DeviceReader, UnreadableError
from torchstone.supervisor.worker_failures import BadReplyError

R = TypeVar("R")
_SAMPLED_BYTES = 4096
"""Bytes of the results that are read before the clock stops. A kernel that writes a thousandth of the results later is
detected in 98 of 100 blocks."""
_RAW_DTYPES = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}
"""The dtype in which elements of this many bytes are copied, so that their bits stay the same."""


class Captured:
    """The first ``count`` calls of a worker on its case, recorded."""

    def __init__(
        self,
        bound: BoundWorker,
        count: int,
        deadline: float,
        pretend: bool = False,
        sweep: Callable[[], None] | None = None,
        chain: Chain | None = None,
    ) -> None:
        """Record the calls. Raises UncapturableError if the worker cannot.

        ``pretend``: record the shim instead. ``sweep``: empties the device's cache before each replay.
        """
        self.count = count
        self._bound = bound
        self._sweep = sweep
        self._pretend = pretend
        self._chain = chain
        done = self._record(deadline)
        self.block: BlockResults = bound.take_down(done, count)
        """Where the results lie, and after :meth:`collect` the arguments as the calls left them."""
        self._results = self._find_results(done)
        self._sampler = _ByteSampler(self._written_spans(), bound.device)
        self._sampled_bytes = self._sampled_places = torch.empty(0)

    def _record(self, deadline: float) -> Done:
        worker = self._bound.worker
        reply = worker.ask(Capture(secrets.token_hex(8), self.count, self._pretend, self._chain), deadline)
        worker.freeze()
        if isinstance(reply, Failed):
            if reply.kind == "exit":
                raise CandidateFailedError(reply)
            # If the kernel itself is broken, its next call fails as well.
            raise UncapturableError(reply.message) from CandidateFailedError(reply)
        if not isinstance(reply, Done):
            raise BadReplyError(f"expected the calls to be recorded, got {type(reply).__name__}")
        if reply.odd_call is not None or reply.plain_values:
            raise UncapturableError("the recorded calls do not return the expected tensors")
        return reply

    def _find_results(self, done: Done) -> list[_Results]:
        """For each new tensor that is returned, the results of all calls, as the judge sees them."""
        spans = self.block.spans
        outputs = self._bound.layout.new_tensors
        if len(spans) != self.count * len(outputs):
            raise UncapturableError("a result lies in an argument, or has no elements")
        reader = self._bound.worker.reader
        assert isinstance(reader, DeviceReader)
        try:
            addresses = reader.locate(spans, done.segments)
        except UnreadableError as error:
            raise BadReplyError(f"the memory of a result cannot be read: {error}") from error
        return [
            _Results(addresses[position :: len(outputs)], self._strides(position), output.native, self._bound)
            for position, output in enumerate(outputs)
        ]

    def _strides(self, position: int) -> tuple[int, ...] | None:
        found = {places[position].strides for places in self.block.done.places}
        if len(found) != 1:
            raise UncapturableError("the strides of a result differ between calls")
        return found.pop()

    def _written_spans(self) -> list[tuple[int, int]]:
        """Address and size of everything that the calls must write."""
        written = [(address, each.size_bytes) for each in self._results for address in each.addresses]
        layout, base = self._bound.layout, self._bound.buffers.address
        for begin, size in layout.returned_arguments():
            written += [(base + row * layout.pitch_bytes + begin, size) for row in range(self.count)]
        if not written:
            raise UncapturableError("the calls write nothing")
        return written

    def objection(self) -> GuardFinding | None:
        """What the guards find wrong with the addresses of the results, which are the same at every replay."""
        return next((found for guard in PLACE_GUARDS if (found := guard.examine(self.block))), None)

    def play(self, storages: Sequence[torch.Tensor], deadline: float) -> Times:
        """Replay the calls on these values, and time them.

        The worker is resumed first, and waits. Then the clock starts, and only then does the judge write the values
        where the worker can see them. So the worker never has the values while the clock is stopped. The cost of
        resuming, which varies, is not timed. Writing the values is; its duration is also reported apart
        (:func:`torchstone.measuring.times_per_call.less_revealing`).
        """
        worker, bound = self._bound.worker, self._bound
        for results in self._results:
            results.overwrite()
        bound.buffers.conceal(self.count)
        self._sampled_places = self._sampler.choose()
        command = Play(secrets.token_hex(8), self.count, self._pretend, self._chain is not None)
        worker.post(command, deadline)
        worker.thaw()
        _expect(worker.answer_to(command, deadline), Armed)
        bound.finish_device_work()
        began = time.perf_counter_ns()
        bound.buffers.reveal(storages)
        if self._sweep is not None:
            self._sweep()
        bound.finish_device_work()
        revealed = time.perf_counter_ns()
        worker.go()
        reply = worker.answer_to(command, deadline)
        self._sampled_bytes = self._sampler.read(self._sampled_places)
        bound.finish_device_work()
        elapsed_ns = time.perf_counter_ns() - began
        worker.freeze()
        return Times(elapsed_ns, _expect(reply, Done).claimed_ns, revealed - began)

    def collect(self) -> list[torch.Tensor]:
        """Private copies of what the calls returned: for each leaf, the results of all calls stacked."""
        self.block.arena = self._bound.buffers.rows(self.count).clone()
        self.block.row = self._bound.buffers.row
        new = iter([results.copied() for results in self._results])
        arguments = self.arguments_after()
        layout = self._bound.layout
        return [
            next(new)
            if output.is_argument is None
            else layout.stacked_argument(arguments[output.is_argument], output.is_argument)
            for output in layout.outputs
        ]

    def arguments_after(self) -> list[torch.Tensor]:
        """The stacked storages of the arguments after the calls, in the private copy."""
        return self._bound.layout.stacked_inputs_in(self.block.arena, self.count)

    def was_finished(self) -> bool:
        """Whether the bytes that were read before the clock stopped are unchanged. Call it after :meth:`collect`."""
        return torch.equal(self._sampled_bytes, self._sampler.read(self._sampled_places))


def _expect(reply: Reply, kind: type[R]) -> R:
    if isinstance(reply, Failed):
        raise CandidateFailedError(reply)
    if not isinstance(reply, kind):
        raise BadReplyError(f"expected a worker that is {kind.__name__.lower()}, got {type(reply).__name__}")
    return reply


class _Results:
    """The results of all calls for one returned tensor."""

    def __init__(
        self, addresses: Sequence[int], strides: Sequence[int] | None, native: torch.Tensor, bound: BoundWorker
    ):
        self.addresses = addresses
        self._native = native
        self._strides = strides
        self._bound = bound
        self._elements = native.numel() if strides is None else span_elements(native.shape, strides)
        self._raw = raw = _RAW_DTYPES[native.dtype.itemsize]
        self.size_bytes = self._elements * raw.itemsize
        if any(address % raw.itemsize for address in addresses):
            raise UncapturableError("the address of a result is not a multiple of its element size")
        self._worker_tensors = [
            DeviceMemory(address, bound.device).tensor(0, self._elements, raw) for address in addresses
        ]

    @cached_property
    def _copy(self) -> torch.Tensor:
        """Memory for a copy. Only the candidate's results are copied, so it is allocated at the first use."""
        return torch.empty((len(self._worker_tensors), self._elements), dtype=self._raw, device=self._bound.device)

    def overwrite(self) -> None:
        """Overwrite the results with garbage, as the owner of a result may."""
        garbage = self._bound.buffers.garbage_for(self._elements, self._raw)
        torch._foreach_copy_(self._worker_tensors, [garbage] * len(self._worker_tensors))

    def copied(self) -> torch.Tensor:
        """A copy ``(calls, *shape)`` of the results, valid until the next copy."""
        torch._foreach_copy_(list(self._copy.unbind(0)), self._worker_tensors)
        values = self._copy.view(self._native.dtype)
        if self._strides is None:
            return values.view(len(self._worker_tensors), *self._native.shape)
        return values.as_strided((len(self._worker_tensors), *self._native.shape), (self._elements, *self._strides))


class _ByteSampler:
    """Reads bytes of the results at random places, which are chosen again for each replay."""

    def __init__(self, written: Sequence[tuple[int, int]], device: torch.device) -> None:
        self._addresses = np.array([address for address, _ in written], dtype=np.int64)
        sizes = np.array([size for _, size in written], dtype=np.int64)
        self._ends = np.cumsum(sizes)
        self._base = int(self._addresses.min())
        # One tensor from the first result to the last. Not all in between is memory, but only results are indexed.
        range_bytes = int((self._addresses + sizes).max()) - self._base
        self._results_range = DeviceMemory(self._base, device).tensor(0, range_bytes, torch.uint8)
        self._device = device

    def choose(self) -> torch.Tensor:
        """Choose the places: offsets of random bytes of the results."""
        generator = np.random.default_rng(secrets.randbits(128))
        drawn = generator.integers(0, self._ends[-1], size=_SAMPLED_BYTES)
        results = np.searchsorted(self._ends, drawn, side="right")
        offsets = drawn - np.where(results > 0, self._ends[results - 1], 0)
        return torch.from_numpy(self._addresses[results] + offsets - self._base).to(self._device)

    def read(self, where: torch.Tensor) -> torch.Tensor:
        """Read the bytes at these places."""
        return self._results_range.index_select(0, where)
