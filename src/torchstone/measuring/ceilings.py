"""Measures a device's ceilings: bandwidth, rate of matrix products in each dtype, least time of a call.

A datasheet states more than any kernel reaches, and nothing about this machine with these threads. So the judge
measures, on random data and on the workers' cores. The best of a few tries counts, because disturbances only make a try
slower. Ceilings are kept in the process, and for a day on disk (``kept_ceilings.py``).

They are what torch's own kernels reach. A better kernel may exceed them, and is then shown with more than 100 %.
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
"""Dtypes whose matrix products are measured."""

_TRIES = 4
"""Tries of each measurement; the best counts."""
_MOST_SECONDS_PER_CALL = 0.02
"""If a product takes this long, larger matrices are not measured."""
_CALLS_WITHOUT_WORK = 1000
"""Calls from which the least time per call is computed."""
_BUSY_SECONDS = 0.1
"""How long a device is kept busy before measuring, so that it raises its clocks."""
_BUSY_ELEMENTS = {"cpu": 1 << 16, "cuda": 1 << 26}
"""Elements of the tensor that is negated meanwhile, by device type."""


class _MeasuredSizes(NamedTuple):
    """Sizes to measure with on a type of device."""

    working_sets_bytes: tuple[int, ...]
    """From a size that fits into caches to much larger ones."""
    matrices: tuple[int, ...]
    """Rows, and columns, of square matrices."""
    bytes_per_try: int
    """Working sets smaller than this are read repeatedly in a try, so that the launch does not count."""


_SIZES = {
    "cpu": _MeasuredSizes(tuple(1 << exponent for exponent in (20, 22, 24, 26)), (256, 512, 1024), 1 << 23),
    "cuda": _MeasuredSizes(tuple(1 << exponent for exponent in (24, 26, 28, 30)), (2048, 4096, 8192), 1 << 30),
}


class DeviceCeilings:
    """The ceilings of one device. Each is measured when it is first requested."""

    def __init__(self, device: torch.device, threads: int, cores: tuple[int, ...], kept: KeptCeilings) -> None:
        self._device = device
        self._threads = threads
        self._cores = cores
        self._kept = kept
        self._known: Ceilings | None = None
        self._doubted = False
        self._measure_again = False

    def is_measured(self, dtype: str | None) -> bool:
        """Whether :meth:`get` needs no measurement."""
        if self._measure_again:
            return False
        known = self._known = self._known or self._kept.read()
        return known is not None and (dtype not in DTYPES or dtype in known.flops_per_second)

    def get(self, dtype: str | None) -> Ceilings:
        """The ceilings, those of arithmetic in this dtype included if it is one of :data:`DTYPES`.

        The caller makes sure that the device is idle.
        """
        if not self.is_measured(dtype):
            start = None if self._measure_again else self._known
            found = self._on_the_workers_cores(lambda: self._measured(dtype, start))
            self._known = found.best_of_both(self._known) if self._known is not None else found
            self._measure_again = False
            self._kept.write(self._known)
        assert self._known is not None
        return self._known

    def request_new_measurement(self) -> None:
        """Have the ceilings measured again, at most once: something was faster, so the machine may have been busy."""
        self._measure_again = self._measure_again or not self._doubted
        self._doubted = True

    def _measured(self, dtype: str | None, start: Ceilings | None) -> Ceilings:
        _raise_clocks(self._device)
        known = start or Ceilings(time.time_ns(), _latency_ns(self._device), _memory_ceilings(self._device))
        if dtype not in DTYPES:
            return known
        rates = {dtype: _matmul_flops_per_second(self._device, dtype), **known.flops_per_second}
        if dtype in ("float16", "bfloat16"):
            # If 16-bit products are slower than float32, a kernel can compute in float32.
            rates.setdefault("float32", _matmul_flops_per_second(self._device, "float32"))
            rates[dtype] = max(rates[dtype], rates["float32"])
        return msgspec.structs.replace(known, flops_per_second=rates)

    def _on_the_workers_cores(self, measure: Callable[[], Ceilings]) -> Ceilings:
        """Run ``measure`` in a new thread, bound to the workers' cores.

        torch's threads stay on the cores of the thread that first needed them.
        """
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
                    torch.cuda.empty_cache()  # free the memory for candidates
            except BaseException as error:  # noqa: BLE001 - raised again below, in the calling thread
                failed.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        if failed:
            raise failed[0]
        return found[0]


def _raise_clocks(device: torch.device) -> None:
    """Keep the device busy for a while: an idle device lowers its clocks, and raises them slowly."""
    memory = torch.rand(_BUSY_ELEMENTS[device.type], device=device)
    until = time.perf_counter() + _BUSY_SECONDS
    while time.perf_counter() < until:
        memory.neg_()
        _synchronize(device)


def _latency_ns(device: torch.device) -> float:
    """Time per call of an operator on one number, in a series of many calls."""
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
    # copy_ is done by the driver, not by a kernel, and is far slower than a kernel on an H200: so neg is tried too.
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

        call()  # libraries are initialised at first use
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
    """The least time on the device's clock, captured as a graph like candidates, so that launches do not count."""
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
