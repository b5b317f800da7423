"""Times all implementations of an operation at one size: blocks of calls, in rounds of random order, until precise.

The clock is an extension point: CUDA graphs on a GPU, the host's clock on a CPU, a list of numbers in tests.
"""

from __future__ import annotations

import contextlib
import gc
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch

from torchstone.sweeps.estimate import estimate

LEAST_ROUNDS = 8
"""Least samples of each implementation, needed for a meaningful interval of the trimmed mean."""
LEAST_CALLS = 100
"""Least timed calls of each implementation."""
MOST_ROUNDS = 400
PRECISION = 0.02
"""Half width of the 95 % interval, as a share of the time, at which timing stops."""
BUDGET_SECONDS = 0.2
"""Time per implementation after which timing stops, whatever the width of the intervals."""
BLOCK_NS = 1_000_000
"""Target time of a block. Launching it and the clock's resolution are then a small part of it."""
MOST_CALLS_IN_GRAPH = 512
"""Most calls in a graph, unless there are more copies. Capturing a call takes the host up to 0.1 ms."""
_MOST_CPU_BLOCK_NS = 250_000_000
"""Longest block on a CPU; of longer calls a block has one."""
_SPIN_CYCLES = 400_000
"""The device is kept busy for about 0.2 ms while the host queues the first calls of a block."""

Call = Callable[[], Any]


class Block(Protocol):
    """A series of calls that can be timed again and again."""

    @property
    def calls(self) -> int: ...


class Clock(Protocol):
    """Prepares blocks of calls and times them."""

    def prepare(self, calls: Sequence[Call], expected_ns: float) -> Block:
        """Make a block that repeats these calls, each on its own memory, until it is long enough."""
        ...

    def take(self, blocks: Sequence[Block]) -> list[float]:
        """Run each block once, one after the other. Returns nanoseconds per call of each block."""
        ...


def take_samples(
    clock: Clock, blocks: Mapping[str, Block], rng: random.Random, now: Callable[[], float] = time.monotonic
) -> dict[str, list[float]]:
    """Samples by name, in nanoseconds per call."""
    samples: dict[str, list[float]] = {name: [] for name in blocks}
    order = list(blocks)
    until = now() + BUDGET_SECONDS * len(order)
    with _without_garbage_collection():
        for rounds in range(1, MOST_ROUNDS + 1):
            rng.shuffle(order)
            for name, time_ns in zip(order, clock.take([blocks[name] for name in order]), strict=True):
                samples[name].append(time_ns)
            enough = rounds >= LEAST_ROUNDS and all(rounds * block.calls >= LEAST_CALLS for block in blocks.values())
            if enough and (now() >= until or all(map(_is_precise, samples.values()))):
                break
    return samples


def _is_precise(samples: Sequence[float]) -> bool:
    return estimate(samples).relative_half_width <= PRECISION


@contextlib.contextmanager
def _without_garbage_collection() -> Iterator[None]:
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _rounded_up(count: int, copies: int) -> int:
    """The count, rounded up to a multiple of the copies."""
    return max(1, math.ceil(count / copies)) * copies


# ---- CUDA


class _GraphBlock:
    """Calls captured as one CUDA graph. Events inside it time the calls without the launch of the graph."""

    def __init__(self, graph: torch.cuda.CUDAGraph, began: torch.cuda.Event, ended: torch.cuda.Event, calls: int):
        self._graph, self._began, self._ended, self.calls = graph, began, ended, calls

    def start(self) -> None:
        self._graph.replay()

    def time_ns(self) -> float:
        return float(self._began.elapsed_time(self._ended)) * 1e6 / self.calls


class _QueuedBlock:
    """Calls that cannot be captured. They are queued while the device spins."""

    def __init__(self, sequence: Sequence[Call], calls: int) -> None:
        self._sequence, self.calls = sequence, calls
        self._began, self._ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]

    def start(self) -> None:
        torch.cuda._sleep(_SPIN_CYCLES)  # type: ignore[no-untyped-call]
        self._began.record()
        _call_in_turn(self._sequence, self.calls)
        self._ended.record()

    def time_ns(self) -> float:
        return float(self._began.elapsed_time(self._ended)) * 1e6 / self.calls


class CudaClock:
    """Measures device time by events. Must be used on another stream than the default one, which cannot be captured."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._make_pool()

    def _make_pool(self) -> None:
        """Make one memory pool for the graphs of all points: a new pool per graph would allocate from the driver.

        A pool exists as long as one of its graphs, so a graph of a tiny operation is kept.
        """
        self._pool = torch.cuda.graph_pool_handle()
        self._anchor = torch.cuda.CUDAGraph()
        number = torch.zeros(1, device=self._device)
        number.add(1)  # the first call loads the kernel, which is not allowed while capturing
        torch.cuda.synchronize(self._device)
        self._anchor.capture_begin(pool=self._pool, capture_error_mode="thread_local")
        self._kept = number.add(1)
        self._anchor.capture_end()

    def release(self) -> None:
        """Free the memory of graphs that are no longer used."""
        del self._anchor, self._kept
        gc.collect()
        torch.cuda.empty_cache()
        self._make_pool()

    def prepare(self, calls: Sequence[Call], expected_ns: float) -> Block:
        count = self._count(len(calls), expected_ns)
        try:
            return self._captured(calls, count)
        except torch.OutOfMemoryError:
            self._make_pool()
            raise
        except Exception:  # noqa: BLE001 - the call worked before, so this exception means that it cannot be captured
            torch.cuda.synchronize(self._device)  # raises if the device itself has failed
            self._make_pool()
            return _QueuedBlock(calls, count)

    def take(self, blocks: Sequence[Block]) -> list[float]:
        for block in blocks:
            block.start()  # type: ignore[attr-defined]
        torch.cuda.synchronize(self._device)
        return [block.time_ns() for block in blocks]  # type: ignore[attr-defined]

    def _count(self, copies: int, expected_ns: float) -> int:
        wanted = max(math.ceil(LEAST_CALLS / LEAST_ROUNDS), math.ceil(BLOCK_NS / expected_ns))
        return _rounded_up(min(wanted, MOST_CALLS_IN_GRAPH), copies)

    def _captured(self, calls: Sequence[Call], count: int) -> _GraphBlock:
        graph = torch.cuda.CUDAGraph()
        began, ended = (torch.cuda.Event(enable_timing=True, external=True) for _ in range(2))  # type: ignore[no-untyped-call]
        graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
        try:
            began.record()
            _call_in_turn(calls, count)
            ended.record()
        except BaseException:
            with contextlib.suppress(RuntimeError):
                graph.capture_end()
            raise
        graph.capture_end()
        graph.replay()  # the first replay uploads the graph to the device
        return _GraphBlock(graph, began, ended, count)


def _call_in_turn(calls: Sequence[Call], count: int) -> None:
    """Make the calls in turn. The results of one turn stay alive, so that results exceed the cache, too."""
    alive: list[Any] = [None] * len(calls)
    for number in range(count):
        place = number % len(calls)
        alive[place] = calls[place]()


# ---- CPU


class _HostBlock:
    def __init__(self, sequence: Sequence[Call], calls: int) -> None:
        self.sequence, self.calls = sequence, calls
        self.next = 0


class CpuClock:
    """Measures host time. A block continues where the last one ended, so that short blocks use all copies, too."""

    def prepare(self, calls: Sequence[Call], expected_ns: float) -> Block:
        began = time.perf_counter_ns()
        calls[0]()
        took_ns = max(1, time.perf_counter_ns() - began)
        wanted = max(math.ceil(LEAST_CALLS / LEAST_ROUNDS), math.ceil(BLOCK_NS / took_ns))
        return _HostBlock(calls, max(1, min(wanted, _MOST_CPU_BLOCK_NS // took_ns)))

    def take(self, blocks: Sequence[Block]) -> list[float]:
        return [self._time_ns(block) for block in blocks]  # type: ignore[arg-type]

    def _time_ns(self, block: _HostBlock) -> float:
        sequence, copies = block.sequence, len(block.sequence)
        places = [(block.next + number) % copies for number in range(block.calls)]
        block.next = (block.next + block.calls) % copies
        found: Any = None
        began = time.perf_counter_ns()
        for place in places:
            found = sequence[place]()
        ended = time.perf_counter_ns()
        del found
        return (ended - began) / block.calls
