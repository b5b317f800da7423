"""What it takes to lay results out as torch's own lie: work that a kernel leaves to whoever reads them.

Values are compared wherever they lie, and an operator that promises no order of memory may return another than torch's.
But a copy whose dimensions are turned by their strides alone has not been made, and its next reader pays for it. So
that copy is timed here, by the judge, on its own memory, and a speed counts no further than what is left with it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Collection

import torch

from torchstone.court.layout import Layout
from torchstone.court.testimony import Lying
from torchstone.operators import contiguous_strides
from torchstone.workers.protocol import same_steps, span_elements

_TIMES, _PAIRS = 7, 4
"""How often it is timed, on how many pairs of memory in turn: none is to lie in a cache because it has just been."""
_MOST_BYTES = 256 << 20
"""Of one side of these pairs: what is larger is in no cache anyway."""
_MOST_WAYS, _FOREVER_NS = 8, 1e15
"""Ways in which results of one kernel lie, at most: to time more of them would be to its liking."""
_TOGETHER = 16
"""Copies on a device, whose clock is the host's: waiting for one takes as long as many copies."""


def relaying_ns(layout: Layout, seen: Collection[Lying], device: torch.device) -> float:
    """Per call, for the results that were seen to lie otherwise than torch's; of several ways the slowest."""
    if layout.is_dynamic:
        return 0.0
    if len(seen) > _MOST_WAYS * len(layout.new_tensors):
        return _FOREVER_NS
    taken: dict[int, float] = {}
    for position, strides in seen:
        native = layout.new_tensors[position].native
        lies = contiguous_strides(native.shape) if strides is None else strides
        if native.numel() and not same_steps(native.shape, lies, native.stride()):
            taken[position] = max(taken.get(position, 0.0), _copying_ns(native, lies, device))
    return sum(taken.values())


def _copying_ns(native: torch.Tensor, lies: tuple[int, ...], device: torch.device) -> float:
    span = span_elements(native.shape, lies)
    pairs = [
        (
            torch.zeros(span, dtype=native.dtype, device=device).as_strided(native.shape, lies),
            torch.empty_strided(native.shape, native.stride(), dtype=native.dtype, device=device),
        )
        for _ in range(max(1, min(_PAIRS, _MOST_BYTES // (span * native.dtype.itemsize))))
    ]
    together = _TOGETHER if device.type == "cuda" else 1
    return statistics.median(_once_ns(pairs, number, together, device) for number in range(_TIMES))


def _once_ns(pairs: list[tuple[torch.Tensor, torch.Tensor]], number: int, together: int, device: torch.device) -> float:
    _wait_for(device)
    began = time.perf_counter_ns()
    for more in range(together):
        result, as_torchs = pairs[(number + more) % len(pairs)]
        as_torchs.copy_(result)
    _wait_for(device)
    return (time.perf_counter_ns() - began) / together


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
