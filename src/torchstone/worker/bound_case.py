"""One case in the worker: its arguments in memory that the judge shares, and the candidate's calls on them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec
import torch

from torchstone import operators
from torchstone.chain import Chain
from torchstone.chain_arithmetic import Links, selecting_results
from torchstone.gradient_operators import Differentiated, Passes
from torchstone.model_operators import ModelFunction
from torchstone.protocol.commands import Bind, Capture, Play
from torchstone.protocol.replies import Done
from torchstone.protocol.shared_memory import Memory, MirroredMemory, OpenedDeviceMemory
from torchstone.protocol.tensor_places import KEPT_ARENA_BYTES
from torchstone.schema import tensors_of
from torchstone.worker.cuda_graph_recording import PreparedCall, Recording
from torchstone.worker.dirty_memory import fill_for_results, reserve_result_memory
from torchstone.worker.forwards_before_backwards import run_forwards_before_backwards
from torchstone.worker.result_addresses import Binding, ResultLocator
from torchstone.worker.shim import Shim

_MOST_CACHED_BYTES = 256 << 20
"""Most device memory that torch's allocator may keep reserved between cases. Above it, the cache is emptied."""


class BoundCase:
    """A case whose tensors lie in shared memory: the argument lists of its calls, and their kept results."""

    def __init__(self, bind: Bind, memory: Memory, device: torch.device, candidate: Callable[..., Any] | None) -> None:
        self._device = device
        outputs = [
            (output, None if output.dtype is None else operators.torch_dtype(output.dtype)) for output in bind.outputs
        ]
        self._memory = memory
        self._arena_bytes = bind.arena_bytes
        recipes = tensors_of(bind.case)
        self._tensors: list[list[torch.Tensor]] = []
        bindings: list[list[Binding]] = []
        self._calls: list[tuple[list[Any], dict[str, Any]]] = []
        for index in range(bind.sets):
            tensors = [
                operators.view_of(self._flat(placement, index), recipe)
                for placement, recipe in zip(bind.inputs, recipes, strict=True)
            ]
            self._tensors.append(tensors)
            bindings.append([(t.data_ptr(), tuple(t.shape), t.stride(), t.dtype) for t in tensors])
            self._calls.append(operators.build_arguments(bind.case, tensors, device))
        self._candidate = candidate
        self._prepared_shim_calls: dict[Callable[..., Any], list[PreparedCall]] = {}
        self._prepared = [] if candidate is None else self._prepare(candidate)
        self._locator = ResultLocator(outputs, bindings, memory, bind.arena_bytes, device)
        self._tensors_per_call = sum(dtype is not None and output.argument is None for output, dtype in outputs)
        """Number of tensors that a call returns, without those that are arguments."""
        self.raised_in: int | None = None
        """Number of the call that raised in the last block; None: no call did, or it is unknown."""
        self._kept_results: list[Any] = []
        """Results of earlier blocks: the judge checks that later calls do not change them."""
        self._recordings: dict[tuple[int, bool, bool], Recording] = {}
        self._links: dict[Chain, Links] = {}
        self.shim = Shim(outputs, self._tensors, device)
        fill_for_results(bind.outputs, device)
        if bind.case.timed and device.type == "cpu":
            reserve_result_memory(bind.outputs, bind.sets)

    @property
    def arena_address(self) -> int:
        return self._memory.address

    def prepared(self, function: Callable[..., Any]) -> list[PreparedCall]:
        """The case's calls of a function. They are prepared once; the candidate's when the case is bound."""
        if function is self._candidate:
            return self._prepared
        if function not in self._prepared_shim_calls:
            self._prepared_shim_calls[function] = self._prepare(function)
        return self._prepared_shim_calls[function]

    def _prepare(self, function: Callable[..., Any]) -> list[PreparedCall]:
        if isinstance(function, Differentiated | ModelFunction):
            return [PreparedCall(function.bound(args, kwargs), [], {}) for args, kwargs in self._calls]
        return [PreparedCall(function, args, kwargs) for args, kwargs in self._calls]

    def close(self) -> None:
        """Drop results and recordings. On a device, close a large arena and empty a large cache of the allocator."""
        self._locator.kept.clear()
        self._kept_results.clear()
        self._recordings.clear()
        self._prepared.clear()
        self._prepared_shim_calls.clear()
        if isinstance(self._memory, OpenedDeviceMemory) and self._arena_bytes > KEPT_ARENA_BYTES:
            self._memory.close()
        if self._device.type == "cuda" and torch.cuda.memory_reserved(self._device) > _MOST_CACHED_BYTES:
            torch.cuda.empty_cache()  # a worker that waits for its next case needs no memory

    def fetch(self, calls: int) -> None:
        """Copy the arguments of the first calls to the device, if the worker's arena is a copy of the judge's."""
        if isinstance(self._memory, MirroredMemory):
            self._memory.fetch(self._argument_bytes(calls))

    def _deliver(self, calls: int) -> None:
        """Copy the arguments of the first calls back to the judge, if the worker's arena is a copy of the judge's."""
        if isinstance(self._memory, MirroredMemory):
            self._memory.deliver(self._argument_bytes(calls))

    def _argument_bytes(self, calls: int) -> int:
        """Bytes of the arena that hold the arguments of this many calls."""
        return self._arena_bytes // len(self._calls) * calls

    def _flat(self, placement: Any, index: int) -> torch.Tensor:
        offset = placement.offset_bytes + index * placement.pitch_bytes
        return self._memory.tensor(offset, placement.elements, operators.torch_dtype(placement.dtype))

    def keep(self, calls: tuple[int, ...]) -> None:
        """Keep the results of these calls of the last block until the case is released."""
        for call in calls:
            self._kept_results += self._locator.kept[
                call * self._tensors_per_call : (call + 1) * self._tensors_per_call
            ]

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
        """Make ``count`` calls in turn. Only chained calls have work between them: it computes the next arguments."""
        self._locator.kept.clear()
        self.raised_in = None
        self.fetch(first + count)
        calls = self.prepared(candidate)[first : first + count]
        link = self._link(chain)
        passes = [call.function for call in calls if backward and isinstance(call.function, Passes)]
        results = []
        began = time.perf_counter_ns()
        if backward and len(passes) == len(calls):
            results = run_forwards_before_backwards(passes, backward, other_shapes=other_shapes)
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
        reply = self._locator.report(token, first, results)
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        self._deliver(first + count)
        return msgspec.structs.replace(reply, claimed_ns=time.perf_counter_ns() - began)

    def repeat(self, token: str, function: Callable[..., Any], times: int) -> Done:
        """Make the first call this many times. Only the last result is kept."""
        called, args, kwargs = self.prepared(function)[0]
        for _ in range(times - 1):
            called(*args, **kwargs)
        return self.call(token, function, 0, 1)

    def capture(self, command: Capture, candidate: Callable[..., Any]) -> Done:
        """Record the calls as a CUDA graph. Their results are kept as long as the recording."""
        kept, self._locator.kept = self._locator.kept, []
        try:
            if command.pretend:
                self.shim.begin()
            calls, link = self.prepared(candidate)[: command.count], self._link(command.chain)
            recording = Recording(calls, self._device, link, called_before=command.pretend)
            reply = self._locator.report(command.token, 0, recording.results)
            recording.kept = self._locator.kept
        finally:
            self._locator.kept = kept
        self._recordings[command.count, command.pretend, command.chain is not None] = recording
        return reply

    def _link(self, chain: Chain | None) -> Callable[[int, Any], None] | None:
        """A function that computes the next call's arguments from a result; None: the calls are not chained."""
        if chain is None:
            return None
        if chain not in self._links:
            self._links[chain] = Links(chain, self._device)
        links = self._links[chain]

        def link(index: int, result: Any) -> None:
            found = selecting_results(operators.flatten_outputs(result))
            if found:
                links.move_next_arguments(
                    found, [self._tensors[index + 1][moved.position] for moved in chain.arguments]
                )

        return link

    def play(self, command: Play) -> Done:
        """Replay the recorded calls. The reply has the time that the device measured for them."""
        return Done(command.token, self._recordings[command.count, command.pretend, command.chained].play_ns())
