"""Times calls by CUDA events, by the host's clock, by triton's `do_bench` or by torch's `Timer`."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import torch

from torchstone.harness.benchmark_process_messages import Block

Call = Callable[[], Any]
Report = Callable[[Any], None]


class CallTimer:
    """Times calls: on a CPU one by one, on CUDA queued or one by one."""

    def __init__(self, is_cuda: bool, all_devices: bool = False) -> None:
        self._is_cuda = is_cuda
        self._all_devices = all_devices
        self._events: list[Any] = []

    def synchronize(self) -> None:
        """Wait until the device has finished; all devices if the benchmark uses several."""
        if not self._is_cuda:
            return
        if not self._all_devices:
            torch.cuda.synchronize()
            return
        for device in range(torch.cuda.device_count()):
            torch.cuda.synchronize(device)

    def take(self, call: Call, calls: int, report: Report) -> Block:
        """Time a block by the host's clock. On CUDA the device is idle before each call and when its time ends."""
        clock = time.perf_counter_ns
        times = []
        for _ in range(calls):
            self.synchronize()
            began = clock()
            returned = call()
            self.synchronize()
            times.append(clock() - began)
            if returned is not None:
                report(returned)
            del returned  # so that freeing a result is not timed with the next call
        return Block(tuple(round(taken / 1e6, 6) for taken in times))

    def take_queued(self, call: Call, calls: int, report: Report, leads_in: bool) -> Block:
        """Time a block of queued calls by CUDA events between them, so that the device is never idle."""
        events = self._event_pool(calls + 1)
        self.synchronize()
        if leads_in:
            call()
        began = time.perf_counter_ns()
        events[0].record()
        for event in events[1 : calls + 1]:
            returned = call()
            event.record()
            if returned is not None:
                report(returned)
            del returned
        host_ms = (time.perf_counter_ns() - began) / 1e6
        self.synchronize()
        pairs = itertools.pairwise(events[: calls + 1])
        return Block(tuple(round(start.elapsed_time(end), 6) for start, end in pairs), host_ms)

    def unseen_ms(self, call: Call) -> tuple[float, float]:
        """Wall time of one call, and that time minus the time between CUDA events around the call."""
        start, end = self._event_pool(2)[:2]
        self.synchronize()
        began = time.perf_counter_ns()
        start.record()
        call()
        end.record()
        self.synchronize()
        wall_ms = (time.perf_counter_ns() - began) / 1e6
        return wall_ms, wall_ms - start.elapsed_time(end)

    def _event_pool(self, count: int) -> list[Any]:
        kind: Any = torch.cuda.Event
        self._events += [kind(enable_timing=True) for _ in range(count - len(self._events))]
        return self._events


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
