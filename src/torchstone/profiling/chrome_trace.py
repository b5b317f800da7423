"""Reads the times of kernels and operators from a Chrome trace. It is not trusted: the kernel's process wrote it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import msgspec

from torchstone.profiling.base import NAME_CHARACTERS, weighted_mean
from torchstone.schema import ProfiledKernel

Kind = Literal["kernel", "copy", "operator"]

_KINDS: dict[str, Kind] = {"kernel": "kernel", "gpu_memcpy": "copy", "gpu_memset": "copy", "cpu_op": "operator"}
"""Category of an event -> kind. Events of other categories (annotations, runtime calls) are ignored."""
_NS_PER_US = 1000
_MAX_EVENT_US = 1e12
"""Longest plausible event, about eleven days. Longer events are ignored."""
_MAX_PERCENT = 1e6
"""Largest plausible percentage."""


class NotATraceError(Exception):
    """The bytes are not what torch's profiler writes."""


class _Details(msgspec.Struct, frozen=True):
    """Arguments of an event. Their types are checked later, since the trace is not trusted."""

    registers: Any = msgspec.field(default=None, name="registers per thread")
    grid: Any = None
    block: Any = None
    occupancy: Any = msgspec.field(default=None, name="est. achieved occupancy %")


class _Event(msgspec.Struct, frozen=True):
    name: str = ""
    cat: str = ""
    ph: str = ""
    ts: float = 0.0
    dur: float = 0.0
    tid: int | str = 0
    args: _Details = _Details()


class _Trace(msgspec.Struct, frozen=True):
    events: tuple[_Event, ...] = msgspec.field(name="traceEvents")


Shape = tuple[Kind, str, int | None, int | None, int | None]
"""Key by which launches are counted together: kind, name, grid, block, registers."""


def kernels_of(trace: bytes) -> list[ProfiledKernel]:
    """Device kernels and copies, if there are any; else torch's operators on the CPU."""
    try:
        events = msgspec.json.decode(trace, type=_Trace).events
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise NotATraceError(str(error)) from error
    finished = [event for event in events if event.ph == "X" and 0 <= event.dur < _MAX_EVENT_US and event.cat in _KINDS]
    on_device = [event for event in finished if _KINDS[event.cat] != "operator"]
    if on_device:
        return _grouped((event, event.dur) for event in on_device)
    return _grouped(_own_times(finished))


def _own_times(events: Iterable[_Event]) -> Iterator[tuple[_Event, float]]:
    """Each event with its own time: its duration minus those of its direct children on the same thread."""
    threads: dict[int | str, list[_Event]] = defaultdict(list)
    for event in events:
        threads[event.tid].append(event)
    for of_thread in threads.values():
        of_thread.sort(key=lambda event: (event.ts, -event.dur))
        own = [event.dur for event in of_thread]
        around: list[int] = []
        for index, event in enumerate(of_thread):
            while around and event.ts >= of_thread[around[-1]].ts + of_thread[around[-1]].dur:
                around.pop()
            if around:
                own[around[-1]] -= event.dur
            around.append(index)
        yield from ((event, max(0.0, time_us)) for event, time_us in zip(of_thread, own, strict=True))


def _grouped(events: Iterable[tuple[_Event, float]]) -> list[ProfiledKernel]:
    groups: dict[Shape, list[tuple[float, float | None]]] = defaultdict(list)
    for event, time_us in events:
        details = event.args
        shape = (
            *(_KINDS[event.cat], event.name[:NAME_CHARACTERS]),
            *(_product_of_sizes(details.grid), _product_of_sizes(details.block), _whole(details.registers)),
        )
        groups[shape].append((time_us, _number(details.occupancy)))
    return [_kernel(shape, launches) for shape, launches in groups.items()]


def _kernel(shape: Shape, launches: list[tuple[float, float | None]]) -> ProfiledKernel:
    kind, name, grid, block, registers = shape
    return ProfiledKernel(
        name=name,
        kind=kind,
        launches=len(launches),
        profiled_ns=round(sum(time_us for time_us, _ in launches) * _NS_PER_US),
        occupancy_percent=weighted_mean(launches),
        registers_per_thread=registers,
        grid_size=grid,
        block_size=block,
    )


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= _MAX_PERCENT else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 32 else None


def _product_of_sizes(sizes: Any) -> int | None:
    """Product of a grid's or block's sizes: `[128, 1, 1]` -> 128. None: not plausible."""
    if not isinstance(sizes, list) or not sizes or len(sizes) > 3:
        return None
    numbers = [_whole(size) for size in sizes]
    return None if None in numbers else min(math.prod(n for n in numbers if n is not None), 1 << 62)
