"""Has a worker record calls as a CUDA graph, and replays them again and again on new values.

Launched together, kernels follow each other without a launch in between. So the time of a block is the device's, not
the host's. The places of the results are known before the calls are made.

The judge's clock stops when the judge has read a few thousand bytes of the results, at random places. It reads the
whole results later; they must hold the same bytes there. So work that goes on behind a reply is found, without
copying everything on the clock.
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
_GLANCES = 4096
"""Bytes that are looked at on the clock. A kernel that leaves a thousandth of the results for later is seen in 98 of
100 blocks."""
_RAW = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}


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
        """Raises UncapturableError where the worker cannot record them. ``sweep`` empties caches before the clock."""
        self.count = count
        self._bound = bound
        self._sweep = sweep
        self._pretend = pretend
        self._chain = chain
        done = self._record(deadline)
        self.block: BlockResults = bound.take_down(done, count)
        """Where the results lie, and after :meth:`collect` the arguments as the calls left them."""
        self._results = self._find_results(done)
        self._glances = _Glances(self._readable(), bound.device)
        self._seen = self._where = torch.empty(0)

    def _record(self, deadline: float) -> Done:
        worker = self._bound.worker
        reply = worker.ask(Capture(secrets.token_hex(8), self.count, self._pretend, self._chain), deadline)
        worker.freeze()
        if isinstance(reply, Failed):
            if reply.kind == "exit":
                raise CandidateFailedError(reply)
            # What is really broken shows in the next call.
            raise UncapturableError(reply.message) from CandidateFailedError(reply)
        if not isinstance(reply, Done):
            raise BadReplyError(f"expected the calls to be recorded, got {type(reply).__name__}")
        if reply.odd_call is not None or reply.plain_values:
            raise UncapturableError("the recorded calls return something else than tensors")
        return reply

    def _find_results(self, done: Done) -> list[_Results]:
        """Per returned new tensor, the results of all calls, as the judge sees them."""
        spans = self.block.spans
        outputs = self._bound.layout.new_tensors
        if len(spans) != self.count * len(outputs):
            raise UncapturableError("results that lie in arguments, or hold nothing")
        reader = self._bound.worker.reader
        assert isinstance(reader, DeviceReader)
        try:
            addresses = reader.locate(spans, done.segments)
        except UnreadableError as error:
            raise BadReplyError(f"a result that cannot be read: {error}") from error
        return [
            _Results(addresses[position :: len(outputs)], self._strides(position), output.native, self._bound)
            for position, output in enumerate(outputs)
        ]

    def _strides(self, position: int) -> tuple[int, ...] | None:
        found = {places[position].strides for places in self.block.done.places}
        if len(found) != 1:
            raise UncapturableError("results whose layout differs from call to call")
        return found.pop()

    def _readable(self) -> list[tuple[int, int]]:
        """Address and size of everything that the calls must write."""
        written = [(address, each.size_bytes) for each in self._results for address in each.addresses]
        layout, base = self._bound.layout, self._bound.buffers.address
        for begin, size in layout.returned_arguments():
            written += [(base + row * layout.pitch_bytes + begin, size) for row in range(self.count)]
        if not written:
            raise UncapturableError("calls that write nothing")
        return written

    def objection(self) -> GuardFinding | None:
        """What is wrong with where the results lie: the same for every time that the calls are made."""
        return next((found for guard in PLACE_GUARDS if (found := guard.examine(self.block))), None)

    def play(self, storages: Sequence[torch.Tensor], deadline: float) -> Times:
        """Make the calls on these values.

        The worker is woken first, and waits. Then the clock starts, and only then does the judge write the values
        where the worker can see them. So the worker never has the values while the clock stands still. The cost of
        waking, which varies, is off the clock. Writing the values is on it; its duration is reported beside the time
        (:func:`torchstone.measuring.times_per_call.less_revealing`).
        """
        worker, bound = self._bound.worker, self._bound
        for results in self._results:
            results.spoil()
        bound.buffers.conceal(self.count)
        self._where = self._glances.choose()
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
        self._seen = self._glances.look(self._where)
        bound.finish_device_work()
        elapsed_ns = time.perf_counter_ns() - began
        worker.freeze()
        return Times(elapsed_ns, _expect(reply, Done).claimed_ns, revealed - began)

    def collect(self) -> list[torch.Tensor]:
        """Private copies of what the calls returned, leaf by leaf, each stacked over the calls."""
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
        """The stacked storages of the arguments in the private copy."""
        return self._bound.layout.stacked_inputs_in(self.block.arena, self.count)

    def was_finished(self) -> bool:
        """Whether what was seen on the clock is still what lies there. Ask after :meth:`collect`."""
        return torch.equal(self._seen, self._glances.look(self._where))


def _expect(reply: Reply, kind: type[R]) -> R:
    if isinstance(reply, Failed):
        raise CandidateFailedError(reply)
    if not isinstance(reply, kind):
        raise BadReplyError(f"expected a worker that is {kind.__name__.lower()}, got {type(reply).__name__}")
    return reply


class _Results:
    """One returned tensor of each of the calls."""

    def __init__(
        self, addresses: Sequence[int], strides: Sequence[int] | None, native: torch.Tensor, bound: BoundWorker
    ):
        self.addresses = addresses
        self._native = native
        self._strides = strides
        self._bound = bound
        self._elements = native.numel() if strides is None else span_elements(native.shape, strides)
        self._raw = raw = _RAW[native.dtype.itemsize]
        self.size_bytes = self._elements * raw.itemsize
        if any(address % raw.itemsize for address in addresses):
            raise UncapturableError("results that do not lie at a multiple of their element's size")
        self._there = [DeviceMemory(address, bound.device).tensor(0, self._elements, raw) for address in addresses]

    @cached_property
    def _here(self) -> torch.Tensor:
        """Room for a copy, which is made of the candidate's alone."""
        return torch.empty((len(self._there), self._elements), dtype=self._raw, device=self._bound.device)

    def spoil(self) -> None:
        """Overwrite them, as the owner of a result may."""
        garbage = self._bound.buffers.garbage_for(self._elements, self._raw)
        torch._foreach_copy_(self._there, [garbage] * len(self._there))

    def copied(self) -> torch.Tensor:
        """``(calls, *shape)``, until the next copy."""
        torch._foreach_copy_(list(self._here.unbind(0)), self._there)
        values = self._here.view(self._native.dtype)
        if self._strides is None:
            return values.view(len(self._there), *self._native.shape)
        return values.as_strided((len(self._there), *self._native.shape), (self._elements, *self._strides))


class _Glances:
    """Bytes at places that are chosen again each time."""

    def __init__(self, written: Sequence[tuple[int, int]], device: torch.device) -> None:
        self._addresses = np.array([address for address, _ in written], dtype=np.int64)
        sizes = np.array([size for _, size in written], dtype=np.int64)
        self._ends = np.cumsum(sizes)
        self._base = int(self._addresses.min())
        # One tensor from the first result to the last, although not all in between is memory: only results are indexed.
        reach = int((self._addresses + sizes).max()) - self._base
        self._all = DeviceMemory(self._base, device).tensor(0, reach, torch.uint8)
        self._device = device

    def choose(self) -> torch.Tensor:
        """Where to look."""
        chance = np.random.default_rng(secrets.randbits(128))
        drawn = chance.integers(0, self._ends[-1], size=_GLANCES)
        which = np.searchsorted(self._ends, drawn, side="right")
        into = drawn - np.where(which > 0, self._ends[which - 1], 0)
        return torch.from_numpy(self._addresses[which] + into - self._base).to(self._device)

    def look(self, where: torch.Tensor) -> torch.Tensor:
        return self._all.index_select(0, where)
