"""Times the copy of a result into torch's memory layout: work that a kernel leaves to the next reader.

Results may have other strides than torch's, where the operator promises none. But if a kernel only permutes strides
where torch copies, the next reader of the result pays for the copy. So the judge times that copy in its own memory. A
speedup counts only if it remains with this cost added.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Collection

import torch

from torchstone.judge_process.block_results import ResultStrides
from torchstone.judge_process.call_layout import CallLayout
from torchstone.judging import strides_like
from torchstone.operators import contiguous_strides
from torchstone.protocol.tensor_places import same_steps, span_elements

_TIMINGS, _MOST_RESULTS = 7, 64
"""Number of timings, and most results that are copied in turn: a result must not lie in a cache from its last copy."""
_MOST_BYTES = 128 << 20
"""Most bytes of these results together: more than caches hold."""
_MOST_LAYOUTS, _TOO_MANY_LAYOUTS_NS = 8, 1e15
"""Most layouts of one result that are timed, and the cost if there are more, which would take too long to time."""
_COPIES_PER_TIMING = 16
"""Copies in one timing on a device: to wait for the device takes as long as many copies."""


def relaying_ns(layout: CallLayout, seen: Collection[ResultStrides], device: torch.device) -> float:
    """Nanoseconds per call to copy results whose strides differ from torch's; of several layouts the slowest counts."""
    layouts = {(position, _strides(layout, position, strides)) for position, strides in seen}
    if len(layouts) > _MOST_LAYOUTS * len(layout.new_tensors):
        return _TOO_MANY_LAYOUTS_NS
    slowest_ns: dict[int, float] = {}
    for position, result_strides in layouts:
        native = layout.new_tensors[position].native
        if native.numel() and not same_steps(native.shape, result_strides, native.stride()):
            slowest_ns[position] = max(slowest_ns.get(position, 0.0), _copying_ns(native, result_strides, device))
    return sum(slowest_ns.values())


def _strides(layout: CallLayout, position: int, strides: tuple[int, ...] | None) -> tuple[int, ...]:
    """The strides of a result; if its shape depends on values, like strides for the shape of the reference's call."""
    shape = tuple(layout.new_tensors[position].native.shape)
    if strides is None:
        return contiguous_strides(shape)
    return strides_like(strides, shape) if layout.is_dynamic and len(strides) == len(shape) else strides


def _copying_ns(native: torch.Tensor, result_strides: tuple[int, ...], device: torch.device) -> float:
    """Median nanoseconds of a copy from these strides to torch's."""
    span = span_elements(native.shape, result_strides)
    results = [  # ones: memory that was never written is one shared page of zeros
        torch.ones(span, dtype=native.dtype, device=device).as_strided(native.shape, result_strides)
        for _ in range(max(1, min(_MOST_RESULTS, _MOST_BYTES // (span * native.dtype.itemsize))))
    ]
    copies = _COPIES_PER_TIMING if device.type == "cuda" else 1
    times = [_one_timing_ns(results, native.stride(), number * copies, copies, device) for number in range(_TIMINGS)]
    return statistics.median(times)


def _one_timing_ns(
    results: list[torch.Tensor], strides: tuple[int, ...], first: int, copies: int, device: torch.device
) -> float:
    """Nanoseconds per copy into new memory, which a kernel's own copy would need as well."""
    _wait_for(device)
    began = time.perf_counter_ns()
    for number in range(first, first + copies):
        result = results[number % len(results)]
        torch.empty_strided(result.shape, strides, dtype=result.dtype, device=device).copy_(result)
    _wait_for(device)
    return (time.perf_counter_ns() - began) / copies


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
