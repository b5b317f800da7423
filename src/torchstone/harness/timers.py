"""Clocks for single calls: CUDA events and the host's clock, triton's `do_bench`, torch's `Timer`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from torchstone.harness.messages import Block

Call = Callable[[], Any]
Report = Callable[[Any], None]


class CallTimer:
    """Times calls one by one. On CUDA each begins on an idle device and ends when the device has finished."""

    def __init__(self, is_cuda: bool, all_devices: bool = False) -> None:
        self._is_cuda = is_cuda
        self._all_devices = all_devices
        self._events: tuple[Any, Any] | None = None

    def synchronize(self) -> None:
        """Wait until the device has finished; all of them where the benchmark uses several."""
        if not self._is_cuda:
            return
        if not self._all_devices:
            torch.cuda.synchronize()
            return
        for device in range(torch.cuda.device_count()):
            torch.cuda.synchronize(device)

    def take(self, call: Call, calls: int, report: Report) -> Block:
        """One block. What a call returns is reported when the clock has stopped."""
        return self._take_cuda(call, calls, report) if self._is_cuda else self._take_cpu(call, calls, report)

    def _take_cpu(self, call: Call, calls: int, report: Report) -> Block:
        clock = time.perf_counter_ns
        times = []
        for _ in range(calls):
            began = clock()
            returned = call()
            times.append(clock() - began)
            if returned is not None:
                report(returned)
            del returned  # what it takes to free a result is not part of the next call
        return Block(tuple(round(taken / 1e6, 6) for taken in times))

    def _take_cuda(self, call: Call, calls: int, report: Report) -> Block:
        """By both clocks: which one counts is decided when all samples are there."""
        if self._events is None:
            kind: Any = torch.cuda.Event
            self._events = kind(enable_timing=True), kind(enable_timing=True)
        start, end = self._events
        clock = time.perf_counter_ns
        walls, events = [], []
        for _ in range(calls):
            self.synchronize()
            began = clock()
            start.record()
            returned = call()
            end.record()
            self.synchronize()
            walls.append(round((clock() - began) / 1e6, 6))
            events.append(round(start.elapsed_time(end), 6))
            if returned is not None:
                report(returned)
            del returned
        return Block(tuple(walls), tuple(events))


def take_triton_samples(call: Call, milliseconds: float) -> tuple[float, ...]:
    """Samples of `triton.testing.do_bench` for about so long."""
    from triton.testing import do_bench

    found = do_bench(call, warmup=0, rep=max(1, round(milliseconds)), return_mode="all")
    return tuple(float(sample) for sample in found)


def take_pytorch_samples(call: Call, milliseconds: float, threads: int) -> tuple[float, ...]:
    """Samples of `torch.utils.benchmark.Timer` for about so long: one per block that it has timed."""
    from torch.utils.benchmark import Timer

    timer = Timer("call()", globals={"call": call}, num_threads=threads)
    return tuple(seconds * 1e3 for seconds in timer.blocked_autorange(min_run_time=milliseconds / 1e3).times)
