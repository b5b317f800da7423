"""Measures what a device can reach (its ceilings): bandwidth, matrix products per dtype, least time of a call.

A datasheet promises more than any kernel gets, and says nothing about this machine with these threads. So the judge
measures on random data and on the workers' cores. The best of a few tries counts, because disturbances only make a try
slower. Ceilings are kept in the process, and for a day on disk (``kept_ceilings.py``).

They are what torch's own kernels reach. A better kernel may pass them, and is then shown with more than 100 %.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

import msgspec
import torch

from torchstone.measuring.kept_ceilings import Ceilings, KeptCeilings, MemoryCeiling

DTYPES = ("float64", "float32", "float16", "bfloat16")
"""Those whose matrix products are measured."""

_TRIES = 4
_MOST_SECONDS_PER_CALL = 0.02
"""Larger matrices are not tried once a product takes this long."""
_CALLS_WITHOUT_WORK = 1000
_WAKING_SECONDS = 0.1
_WAKING_ELEMENTS = {"cpu": 1 << 16, "cuda": 1 << 26}


class _Sizes(NamedTuple):
    """What is worth trying on a kind of device."""

    working_sets_bytes: tuple[int, ...]
    """From the caches to well beyond them."""
    matrices: tuple[int, ...]
    bytes_per_try: int
    """Small working sets are read repeatedly, so that the launch does not count."""


_SIZES = {
    "cpu": _Sizes(tuple(1 << exponent for exponent in (20, 22, 24, 26)), (256, 512, 1024), 1 << 23),
    "cuda": _Sizes(tuple(1 << exponent for exponent in (24, 26, 28, 30)), (2048, 4096, 8192), 1 << 30),
}


class DeviceCeilings:
    """The ceilings of one device, each measured when it is first asked for."""

    def __init__(self, device: torch.device, threads: int, cores: tuple[int, ...], kept: KeptCeilings) -> None:
        self._device = device
        self._threads = threads
        self._cores = cores
        self._kept = kept
        self._known: Ceilings | None = None
        self._doubted = False
        self._measure_again = False

    def knows(self, dtype: str | None) -> bool:
        """Whether asking is free."""
        if self._measure_again:
            return False
        known = self._known = self._known or self._kept.read()
        return known is not None and (dtype not in DTYPES or dtype in known.flops_per_second)

    def get(self, dtype: str | None) -> Ceilings:
        """The ceilings, those of arithmetic in this dtype included if it is one of :data:`DTYPES`.

        The caller makes sure that the device is idle.
        """
        if not self.knows(dtype):
            start = None if self._measure_again else self._known
            found = self._on_the_workers_cores(lambda: self._measured(dtype, start))
            self._known = found.best_of_both(self._known) if self._known is not None else found
            self._measure_again = False
            self._kept.write(self._known)
        assert self._known is not None
        return self._known

    def doubt(self) -> None:
        """Measure again, only once, after something was faster than the ceilings: the machine may have been busy."""
        self._measure_again, self._doubted = not self._doubted, True

    def _measured(self, dtype: str | None, start: Ceilings | None) -> Ceilings:
        _wake(self._device)
        known = start or Ceilings(time.time_ns(), _latency_ns(self._device), _memory_ceilings(self._device))
        if dtype not in DTYPES:
            return known
        rates = {dtype: _matmul_flops_per_second(self._device, dtype), **known.flops_per_second}
        if dtype in ("float16", "bfloat16"):
            # What the hardware or torch does badly in halves can be calculated in float32, at its rate.
            rates.setdefault("float32", _matmul_flops_per_second(self._device, "float32"))
            rates[dtype] = max(rates[dtype], rates["float32"])
        return msgspec.structs.replace(known, flops_per_second=rates)

    def _on_the_workers_cores(self, measure: Callable[[], Ceilings]) -> Ceilings:
        """In a thread of its own: torch's threads stay on the cores of the thread that first needed them."""
        found: list[Ceilings] = []
        failed: list[BaseException] = []

        def work() -> None:
            try:
                if self._cores:
                    os.sched_setaffinity(0, self._cores)
                torch.set_num_threads(self._threads)
                with torch.inference_mode():
                    found.append(measure())
                if self._device.type == "cuda":
                    torch.cuda.empty_cache()  # candidates are to find the memory free
            except BaseException as error:  # noqa: BLE001 - raised again below, in the thread that asked
                failed.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        if failed:
            raise failed[0]
        return found[0]


def _wake(device: torch.device) -> None:
    """A device that had nothing to do lowers its clocks, and takes its time to raise them."""
    memory = torch.rand(_WAKING_ELEMENTS[device.type], device=device)
    until = time.perf_counter() + _WAKING_SECONDS
    while time.perf_counter() < until:
        memory.neg_()
        _synchronize(device)


def _latency_ns(device: torch.device) -> float:
    """Per call of an operator on a single number, many in a row."""
    number = torch.zeros(1, device=device)

    def calls() -> None:
        for _ in range(_CALLS_WITHOUT_WORK):
            number.zero_()

    return _best_seconds(device, calls) / _CALLS_WITHOUT_WORK * 1e9


def _memory_ceilings(device: torch.device) -> tuple[MemoryCeiling, ...]:
    return tuple(_memory_ceiling(device, working_set) for working_set in _SIZES[device.type].working_sets_bytes)


def _memory_ceiling(device: torch.device, working_set: int) -> MemoryCeiling:
    memory = torch.rand(working_set // 4, device=device)
    first, second = memory.chunk(2)
    times = max(1, _SIZES[device.type].bytes_per_try // working_set)

    def rate(call: Callable[[], object]) -> float:
        return times * working_set / _best_seconds(device, lambda: [call() for _ in range(times)])

    read = max(rate(lambda: torch.dot(first, second)), rate(memory.sum))
    # A copy that the driver makes is no kernel's, and on an H200 it is far slower than one.
    copy = max(rate(lambda: second.copy_(first)), rate(lambda: torch.neg(first, out=second)))
    update = 2 * rate(memory.neg_)
    write = rate(memory.zero_)  # last: memory full of zeros can be faster to read
    return MemoryCeiling(working_set, read, write, copy, update)


def _matmul_flops_per_second(device: torch.device, name: str) -> float:
    dtype: torch.dtype = getattr(torch, name)
    best = 0.0
    for size in _SIZES[device.type].matrices:
        left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
        result = torch.empty_like(left)

        def call(left: torch.Tensor = left, right: torch.Tensor = right, out: torch.Tensor = result) -> None:
            torch.mm(left, right, out=out)

        call()  # libraries set themselves up when they are first used
        seconds = _seconds(device, call)
        if seconds < _MOST_SECONDS_PER_CALL:
            seconds = _best_seconds(device, call)
        best = max(best, 2 * size**3 / seconds)
        if seconds >= _MOST_SECONDS_PER_CALL:
            break
    return best


def _best_seconds(device: torch.device, call: Callable[[], object]) -> float:
    if device.type == "cuda":
        return _best_graph_seconds(call)
    return min(_seconds(device, call) for _ in range(_TRIES))


def _best_graph_seconds(call: Callable[[], object]) -> float:
    """On the device's clock, captured as candidates are: what it takes to start calls is no limit of the device."""
    graph = torch.cuda.CUDAGraph()
    began, ended = (torch.cuda.Event(enable_timing=True, external=True) for _ in range(2))  # type: ignore[no-untyped-call]
    with torch.cuda.stream(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
        call()
        torch.cuda.synchronize()
        graph.capture_begin(capture_error_mode="thread_local")
        began.record()
        call()
        ended.record()
        graph.capture_end()
    times = []
    for _ in range(_TRIES):
        graph.replay()
        torch.cuda.synchronize()
        times.append(float(began.elapsed_time(ended)) / 1e3)
    return min(times)


def _seconds(device: torch.device, call: Callable[[], object]) -> float:
    _synchronize(device)
    began = time.perf_counter()
    call()
    _synchronize(device)
    return time.perf_counter() - began


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
