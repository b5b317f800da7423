"""Times the copy of a result into torch's memory layout: work that a kernel leaves to the next reader.

Values are compared wherever they lie. An operator that promises no order of memory may return another order than
torch's. But where a kernel only permutes strides and torch copies, the next reader pays for the copy. So the judge
times that copy on its own memory, and a speed counts only as far as it holds with this cost added.
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

_TIMES, _MOST_RESULTS = 7, 64
"""How often it is timed, on how many results in turn: none is to lie in a cache because it has just been."""
_MOST_BYTES = 128 << 20
"""Of these results: more than caches hold."""
_MOST_WAYS, _FOREVER_NS = 8, 1e15
"""Most layouts of one result that are timed. More would take too long: then the cost counts as endless."""
_TOGETHER = 16
"""Copies on a device, whose clock is the host's: waiting for one takes as long as many copies."""


def relaying_ns(layout: CallLayout, seen: Collection[ResultStrides], device: torch.device) -> float:
    """Per call, for the results that were seen to lie otherwise than torch's; of several ways the slowest."""
    ways = {(position, _lies(layout, position, strides)) for position, strides in seen}
    if len(ways) > _MOST_WAYS * len(layout.new_tensors):
        return _FOREVER_NS
    taken: dict[int, float] = {}
    for position, lies in ways:
        native = layout.new_tensors[position].native
        if native.numel() and not same_steps(native.shape, lies, native.stride()):
            taken[position] = max(taken.get(position, 0.0), _copying_ns(native, lies, device))
    return sum(taken.values())


def _lies(layout: CallLayout, position: int, strides: tuple[int, ...] | None) -> tuple[int, ...]:
    """A result's strides; where its shape depends on the values, those that torch's shape of one call would have so."""
    shape = tuple(layout.new_tensors[position].native.shape)
    if strides is None:
        return contiguous_strides(shape)
    return strides_like(strides, shape) if layout.is_dynamic and len(strides) == len(shape) else strides


def _copying_ns(native: torch.Tensor, lies: tuple[int, ...], device: torch.device) -> float:
    span = span_elements(native.shape, lies)
    results = [  # written to: what never was is one page of zeros, however often it is read
        torch.ones(span, dtype=native.dtype, device=device).as_strided(native.shape, lies)
        for _ in range(max(1, min(_MOST_RESULTS, _MOST_BYTES // (span * native.dtype.itemsize))))
    ]
    together = _TOGETHER if device.type == "cuda" else 1
    times = [_once_ns(results, native.stride(), number * together, together, device) for number in range(_TIMES)]
    return statistics.median(times)


def _once_ns(
    results: list[torch.Tensor], strides: tuple[int, ...], first: int, together: int, device: torch.device
) -> float:
    """Into new memory, as a kernel's own copy would be."""
    _wait_for(device)
    began = time.perf_counter_ns()
    for number in range(first, first + together):
        result = results[number % len(results)]
        torch.empty_strided(result.shape, strides, dtype=result.dtype, device=device).copy_(result)
    _wait_for(device)
    return (time.perf_counter_ns() - began) / together


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
