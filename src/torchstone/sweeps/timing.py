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
"""An interval of the middle samples needs so many to mean anything."""
LEAST_CALLS = 100
"""Timed calls of each implementation."""
MOST_ROUNDS = 400
PRECISION = 0.02
"""Half width of the 95 % interval, as a share of the time, at which a time is precise enough."""
BUDGET_SECONDS = 0.2
"""For each implementation. After it, the intervals are what they are."""
BLOCK_NS = 1_000_000
"""A block should take so long: then starting it, and the clock's resolution, are a small part of it."""
MOST_CALLS_IN_GRAPH = 512
"""Unless there are more copies than this to go through: to capture a call takes the host up to 0.1 ms."""
_MOST_CPU_BLOCK_NS = 250_000_000
_SPIN_CYCLES = 400_000
"""The device is kept busy for about 0.2 ms while the host queues the first calls of a block."""

Call = Callable[[], Any]


class Block(Protocol):
    """A series of calls that can be timed again and again."""

    @property
    def calls(self) -> int: ...


class Clock(Protocol):
    """Takes the time of blocks."""

    def prepare(self, calls: Sequence[Call], expected_ns: float) -> Block:
        """A block that goes through these calls, each on memory of its own, as often as makes it long enough."""
        ...

    def take(self, blocks: Sequence[Block]) -> list[float]:
        """Run each block once, one after the other; nanoseconds per call of each."""
        ...


def take_samples(
    clock: Clock, blocks: Mapping[str, Block], rng: random.Random, now: Callable[[], float] = time.monotonic
) -> dict[str, list[float]]:
    """Samples by name, in nanoseconds per call."""
    samples: dict[str, list[float]] = {name: [] for name in blocks}
    order = list(blocks)
    until = now() + BUDGET_SECONDS * len(order)
    with _no_collection():
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
def _no_collection() -> Iterator[None]:
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _rounded_up(count: int, copies: int) -> int:
    """Whole turns through the copies."""
    return max(1, math.ceil(count / copies)) * copies


# ---- CUDA


class _GraphBlock:
    """Calls captured as one graph, with the events that time them inside it: starting the graph is not in the time."""

    def __init__(self, graph: torch.cuda.CUDAGraph, began: torch.cuda.Event, ended: torch.cuda.Event, calls: int):
        self._graph, self._began, self._ended, self.calls = graph, began, ended, calls

    def start(self) -> None:
        self._graph.replay()

    def time_ns(self) -> float:
        return float(self._began.elapsed_time(self._ended)) * 1e6 / self.calls


class _QueuedBlock:
    """Calls that cannot be captured, queued behind a busy device."""

    def __init__(self, sequence: Sequence[Call], calls: int) -> None:
        self._sequence, self.calls = sequence, calls
        self._began, self._ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]

    def start(self) -> None:
        torch.cuda._sleep(_SPIN_CYCLES)  # type: ignore[no-untyped-call]
        self._began.record()
        _go_through(self._sequence, self.calls)
        self._ended.record()

    def time_ns(self) -> float:
        return float(self._began.elapsed_time(self._ended)) * 1e6 / self.calls


class CudaClock:
    """Device time by events. Use it on a stream that is not the default one: on that nothing can be captured."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._keep_pool()

    def _keep_pool(self) -> None:
        """One memory pool for the graphs of all points: a pool of its own for each would ask the driver every time.

        A pool lives as long as a graph of it does, so one that does next to nothing is kept.
        """
        self._pool = torch.cuda.graph_pool_handle()
        self._anchor = torch.cuda.CUDAGraph()
        number = torch.zeros(1, device=self._device)
        number.add(1)  # a kernel is loaded when it is first called, which must not be while capturing
        torch.cuda.synchronize(self._device)
        self._anchor.capture_begin(pool=self._pool, capture_error_mode="thread_local")
        self._kept = number.add(1)
        self._anchor.capture_end()

    def release(self) -> None:
        """Give the memory of graphs that are gone back to the device."""
        del self._anchor, self._kept
        gc.collect()
        torch.cuda.empty_cache()
        self._keep_pool()

    def prepare(self, calls: Sequence[Call], expected_ns: float) -> Block:
        count = self._count(len(calls), expected_ns)
        try:
            return self._captured(calls, count)
        except torch.OutOfMemoryError:
            self._keep_pool()
            raise
        except Exception:  # noqa: BLE001 - it was called before: what it raises now is that it cannot be captured
            torch.cuda.synchronize(self._device)  # raises if the device itself has failed
            self._keep_pool()
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
            _go_through(calls, count)
            ended.record()
        except BaseException:
            with contextlib.suppress(RuntimeError):
                graph.capture_end()
            raise
        graph.capture_end()
        graph.replay()  # the first replay brings the graph to the device
        return _GraphBlock(graph, began, ended, count)


def _go_through(calls: Sequence[Call], count: int) -> None:
    """The results of one turn stay alive, so that results, too, go through more memory than the cache holds."""
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
    """Host time. Blocks go on where the last one ended, so that few calls go through all copies, too."""

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
