"""A worker prepared for one case, with the memory that the judge and the worker share.

Fills that memory (an *arena*) with new values and garbage, and has the worker make the calls. Takes a private copy of
arguments and results before anything is compared, so that later writes of the worker change nothing.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Sequence

import torch

from torchstone import operators, schema
from torchstone.chain import Chain
from torchstone.judge_process.block_results import BlockResults, ResultStrides
from torchstone.judge_process.call_buffers import GARBAGE_SHIFT_BYTES, CallBuffers
from torchstone.judge_process.call_layout import CallLayout
from torchstone.judge_process.candidate_failures import CandidateFailedError
from torchstone.judge_process.core_time import CoreTime
from torchstone.judge_process.overlapped_work import OverlappedWork
from torchstone.judge_process.retained_results import RetainedResults
from torchstone.judging import DrawnCall
from torchstone.protocol.commands import Attribute, Bind, Call, Release, UncheckedCalls
from torchstone.protocol.replies import Attributed, Bound, Done, Failed, Reply
from torchstone.protocol.shared_memory import Arenas, can_share
from torchstone.protocol.tensor_places import KEPT_ARENA_BYTES
from torchstone.schema import Attribution
from torchstone.supervisor.result_reading import Copies, HostReader, Span, UnreadableError, open_reader
from torchstone.supervisor.results_copied_by_worker import CopyingReader
from torchstone.supervisor.worker_failures import BadReplyError, WorkerEndedError
from torchstone.supervisor.worker_handle import Worker
from torchstone.transfer import copy_to_device

_UNAWAITED_RELEASE_BYTES = KEPT_ARENA_BYTES
"""Most bytes of buffers whose release is not awaited. A larger arena is freed after its case, so the worker must have
released it."""


class BoundWorker:
    """A worker, a case, and the buffers of up to ``sets`` calls.

    The judge draws and compares on the *arithmetic device* (:mod:`torchstone.judging.arithmetic_device`). What is
    written to the buffers comes from there, and results are copied to it.
    """

    def __init__(
        self,
        worker: Worker,
        case: schema.Case,
        layout: CallLayout,
        sets: int,
        device: torch.device,
        arithmetic_device: torch.device | None = None,
    ) -> None:
        self.worker = worker
        self.sets = sets
        self.layout = layout
        self._case = case
        self._device = device
        self.on_device = device.type != "cpu"
        if self.on_device and worker.results == "read" and worker.reader is None and not can_share(device):
            worker.results = "copied"
        self._is_copied = worker.results == "copied"
        memory = torch.device("cpu") if self._is_copied else device
        worker.arenas = worker.arenas or Arenas(memory)
        self.arithmetic_device = device if arithmetic_device is None else arithmetic_device
        self.buffers = CallBuffers(worker.arenas, layout, sets, memory, self.arithmetic_device)
        self._arena_address = 0
        self.is_bound = False
        """Whether the worker sees the buffers."""
        self.result_strides: set[ResultStrides] = set()
        """The distinct strides of the results of all calls so far."""
        self._retained = RetainedResults()
        self._judge_cores = os.sched_getaffinity(0)
        self._overwritten: tuple[Sequence[Span], torch.Tensor] | None = None
        """The spans of the last block's results, and the garbage that was written over them."""
        self.counts_core_time = False
        """Whether a block's time is that for which the worker had its core, where :class:`CoreTime` can measure it."""
        self.is_warm = False
        """Whether the judge writes arguments and garbage on the worker's core, so that they lie in its caches. It
        goes back to its own cores before the clock starts."""
        self.keeps_results = True
        """Whether the worker keeps results of earlier blocks, to check that later calls do not change them."""
        self.has_stated_shapes_only = False
        """Whether the kernel is called with its case's shapes only, also in calls whose results are not compared."""
        try:
            if worker.reader is None:
                worker.reader = CopyingReader(worker) if self._is_copied else open_reader(worker.pid, device)
            self._reader = worker.reader
            self._core_time = CoreTime(worker.pid)
        except BaseException:  # the caller has nothing to close
            self.buffers.close()
            raise

    def bind(self, deadline: float) -> None:
        """Give the worker its view of the buffers, and wait until it has it."""
        self.bind_ahead(deadline)
        self.worker.await_sent(deadline)

    def bind_ahead(self, deadline: float) -> None:
        """Send the bind command; the worker carries it out before the next command."""
        command = Bind(
            secrets.token_hex(8),
            self._case,
            self.sets,
            self.layout.input_placements(),
            self.layout.declared_outputs(),
            self.buffers.arena.size_bytes,
            self.buffers.arena.device_handle,
        )
        descriptor = self.buffers.arena.descriptor if self.buffers.arena.device_handle is None else None
        self.worker.send_without_waiting(command, deadline, self._take_bound, descriptor)
        self.is_bound = True

    def _take_bound(self, reply: Reply) -> None:
        if isinstance(reply, Failed):
            raise CandidateFailedError(reply)
        if not isinstance(reply, Bound):
            raise BadReplyError(f"expected the case to be bound, got {type(reply).__name__}")
        self._arena_address = reply.arena_address

    def present(self, calls: Sequence[DrawnCall]) -> None:
        """Write the calls' arguments into the buffers, and random garbage into the bands between them."""
        if self.is_warm:
            self._judge_cores = os.sched_getaffinity(0)
            os.sched_setaffinity(0, self.worker.cores)
        self.buffers.write(calls)
        if not self.buffers.is_elsewhere:  # else the copy from the arithmetic device has ended when it returns
            self.finish_device_work()

    def take_down(self, done: Done, count: int) -> BlockResults:
        """The block that a reply describes, with a private copy of its arguments but not of its results."""
        block = BlockResults(
            self.layout, done, count, self.buffers.rows(count).clone(), self._arena_address, self.buffers.row
        )
        self.result_strides |= block.result_strides
        return block

    @property
    def records_graphs(self) -> bool:
        """Whether calls can be recorded as CUDA graphs: these read arguments where the judge has written them."""
        return self.on_device and not self._is_copied

    @property
    def device(self) -> torch.device:
        return self._device

    def call(
        self,
        count: int,
        deadline: float,
        chain: Chain | None = None,
        backward: tuple[int, ...] = (),
        meanwhile: OverlappedWork | None = None,
        repeats: int = 1,
    ) -> BlockResults:
        """Have the worker make the first ``count`` calls, timed by the judge's clock, and copy their results.

        The clock starts before the worker is resumed. It stops when every process of the worker is paused again. So a
        candidate cannot do untimed work, neither before the command nor after the reply. A device does not stop with
        its process: there the clock runs until the judge has copied the results. Unfinished work is either timed or
        missing in the copy. The cost of this is the same for every party.
        """
        keep = self._retained.choose() if self.keeps_results else ()
        command = Call(
            secrets.token_hex(8),
            0,
            count,
            keep=keep,
            chain=chain,
            backward=backward,
            stated_shapes=self.has_stated_shapes_only,
            repeats=repeats,
        )
        if self.is_warm:
            self._warm_results()
        block = self._call(command, deadline, to_be_compared=True, meanwhile=meanwhile)
        block.unpack()
        block.call_on_kept_result = self._retained.find_call_on_kept_result(block)
        self._overwrite_and_check(block)
        return block

    def time(self, count: int, deadline: float, pretend: bool, chain: Chain | None = None) -> BlockResults:
        """Like :meth:`call`, for the reference or (``pretend``) the shim. Their results are not compared."""
        command = Call(secrets.token_hex(8), 0, count, pretend, () if pretend else self._retained.choose(), chain)
        block = self._call(command, deadline, to_be_compared=False)
        self._overwrite(block)
        if pretend:
            self._retained.pass_over()
        return block

    def can_make_unchecked_calls(self, budget_ns: int) -> bool:
        """Whether :meth:`make_unchecked_calls` can make calls within the budget.

        Not for operators that write to arguments: there a kernel would get its own results as arguments, and may refuse
        them.
        """
        return self._retained.calls_within(budget_ns) > 0 and not operators.contract_of(self._case).mutated

    def make_unchecked_calls(
        self, calls: Sequence[DrawnCall], budget_ns: int, deadline: float, meanwhile: OverlappedWork | None = None
    ) -> None:
        """Have the worker repeat these calls as often as fits into the budget, without comparing their results.

        They must not change the results that the worker keeps, which :meth:`release` checks.
        """
        blocks = -(-self._retained.calls_within(budget_ns) // len(calls))
        if not blocks:
            return
        self.present(calls)
        command = UncheckedCalls(secrets.token_hex(8), blocks, len(calls), self._retained.choose())
        self.worker.post(command, deadline)
        self.worker.thaw()
        deadline += 0.0 if meanwhile is None else meanwhile.do()
        reply = self.worker.answer_to(command, deadline)
        self.worker.freeze()
        if isinstance(reply, Failed):
            raise CandidateFailedError(reply)

    def _call(
        self, command: Call, deadline: float, to_be_compared: bool, meanwhile: OverlappedWork | None = None
    ) -> BlockResults:
        if self.is_warm:
            os.sched_setaffinity(0, self._judge_cores)
        self.worker.post(command, deadline)
        if self.counts_core_time:
            self._core_time.begin(self.worker.frozen_threads)
        began = time.perf_counter_ns()
        self.worker.thaw()
        deadline += 0.0 if meanwhile is None else meanwhile.do()
        reply = self.worker.answer_to(command, deadline)
        reads_at_once = self.on_device or self._is_copied
        if not reads_at_once:
            self.worker.freeze()
            elapsed_ns = time.perf_counter_ns() - began
            if self.counts_core_time:
                elapsed_ns = self._core_time.of_block(elapsed_ns, self.worker.frozen_threads)
        if isinstance(reply, Failed):
            raise CandidateFailedError(reply)
        if not isinstance(reply, Done):
            raise BadReplyError(f"expected the calls to be done, got {type(reply).__name__}")
        block = self._copied_block(reply, command.count, copies=to_be_compared or reads_at_once)
        if reads_at_once:
            self.finish_device_work()
            elapsed_ns = time.perf_counter_ns() - began
            self.worker.freeze()
        block.elapsed_ns = elapsed_ns
        return block

    def _completing_ns(self, spans: Sequence[Span]) -> int:
        """Nanoseconds in which the system provides pages of results that are allocated but not present.

        Called after the results were read, which provides no page. Also after the check for memory that they share:
        providing a page ends the sharing.
        """
        if not isinstance(self._reader, HostReader):
            return 0
        try:
            return self._reader.allocate_pages_ns(spans)
        except UnreadableError as error:
            self.worker.check_alive()
            raise BadReplyError(f"the memory of a result cannot be opened: {error}") from error

    def _copied_block(self, done: Done, count: int, copies: bool) -> BlockResults:
        """The block that a reply describes, with private copies of arguments and (``copies``) of results."""
        block = BlockResults(self.layout, done, count, self.buffers.rows(count), self._arena_address, self.buffers.row)
        self.result_strides |= block.result_strides
        if not copies:
            return block
        read = self._read(block.spans, done) if block.spans else Copies((), (), ())
        if self.buffers.is_elsewhere:
            block.arena, *pieces = copy_to_device([block.arena, *read.pieces], self.arithmetic_device)
            read = read.in_pieces(pieces)
        else:
            block.arena = block.arena.clone()
        block.copies = read
        return block

    def _read(self, spans: Sequence[Span], done: Done) -> Copies:
        try:
            return self._reader.read(spans, done.segments)
        except UnreadableError as error:
            self.worker.check_alive()
            raise BadReplyError(f"the memory of a result cannot be read: {error}") from error

    @property
    def keeps_arguments(self) -> bool:
        """Whether the judge leaves arguments unchanged after a block. On the CPU it overwrites those of one call."""
        return self.on_device

    def _overwrite_and_check(self, block: BlockResults) -> None:
        """Overwrite the results that were read, as their owner may, and check whether arguments change with them."""
        # A device allocation of the worker's is not the arena: the driver exports no memory twice.
        if self.on_device or not block.spans or not any(output.fresh for output in self.layout.new_tensors):
            self._overwrite(block)
            return
        index = secrets.randbelow(block.count)
        follows = self._results_follow_arguments(block, index)
        before = self.buffers.row_of(index).clone()
        self._overwrite(block)
        if follows or not torch.equal(self.buffers.row_of(index), before):
            block.hidden_alias = index

    def _overwrite(self, block: BlockResults) -> None:
        """Write garbage over the results. The time that missing pages take is added to the block's time."""
        if not block.spans:
            return
        block.completing_ns = self._completing_ns(block.spans)
        block.elapsed_ns += block.completing_ns
        shift = secrets.randbelow(GARBAGE_SHIFT_BYTES)
        try:
            self._reader.overwrite(block.spans, self.buffers.garbage[shift:])
            self._overwritten = block.spans, self.buffers.garbage[shift:]
        except UnreadableError as error:
            self.worker.check_alive()
            raise BadReplyError(f"the memory of a result cannot be written: {error}") from error
        self._retained.note(block, shift)
        if not self.buffers.is_elsewhere:  # else the next present or release waits for it: one wait less
            self.finish_device_work()

    def _warm_results(self) -> None:
        """Write the same garbage over the last results again, so that their memory lies in the core's caches: the next
        results are expected there. The worker is paused, and keeps that memory until its next block begins.
        """
        if self._overwritten is not None:
            try:
                self._reader.overwrite(*self._overwritten)
            except UnreadableError as error:
                self.worker.check_alive()
                raise BadReplyError(f"the memory of a result cannot be written: {error}") from error

    def _results_follow_arguments(self, block: BlockResults, index: int) -> bool:
        """Whether results of a call change when its arguments do. Overwrites the arguments, which are no longer needed.

        This is the opposite direction of overwriting results. A private mapping of the arena is copied only when it
        is written to; until then it shows what is written to the arena.
        """
        spans, copies = block.read_of(index)
        shift = secrets.randbelow(GARBAGE_SHIFT_BYTES)
        self.buffers.row_of(index).copy_(self.buffers.garbage[shift : shift + self.layout.pitch_bytes])
        again = self._read(spans, block.done)
        return any(not torch.equal(one, other) for one, other in zip(copies, again, strict=True))

    def attribute(self, deadline: float, with_kernels: bool) -> Attribution | Failed:
        """Have the worker report which operators and device kernels do the work of one call."""
        reply = self.worker.ask(Attribute(secrets.token_hex(8), with_kernels), deadline)
        self.worker.freeze()
        if isinstance(reply, Failed):
            return reply
        if not isinstance(reply, Attributed):
            raise BadReplyError(f"expected an attribution, got {type(reply).__name__}")
        return reply.attribution

    def device_latency_ns(self) -> int:
        """Nanoseconds to write one byte on the judge's device: many, if other work keeps the device busy.

        The buffers do not serve for it: with copied results they lie in host memory.
        """
        began = time.perf_counter_ns()
        torch.zeros(1, dtype=torch.uint8, device=self._device)
        self.finish_device_work()
        return time.perf_counter_ns() - began

    def finish_device_work(self) -> None:
        """Wait for the judge's own device work: before the worker's clock starts, and before a copy is read."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def release(self, deadline: float) -> None:
        """Have the worker release the buffers, so that it can be bound to another case.

        Raises LostResultError if a result that it keeps was changed or freed.
        """
        self.finish_device_work()  # it may use results that the worker frees now
        self._retained.check(self._reader, self.buffers.garbage)
        self._retained = RetainedResults()
        self.worker.send_without_waiting(Release(secrets.token_hex(8)), deadline, _take_released)
        if self.sets * self.layout.footprint_bytes > _UNAWAITED_RELEASE_BYTES:  # small ones: before its next command
            self.worker.await_sent(deadline)
        self._reader.end_case()
        self._overwritten = None
        self.is_bound = False

    def close(self) -> None:
        """Free the buffers. The worker must have released them or be dead."""
        self._core_time.close()
        self.buffers.close()


def _take_released(reply: Reply) -> None:
    if isinstance(reply, Failed):
        raise WorkerEndedError(None)
