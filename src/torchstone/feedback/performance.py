"""Describes a kernel's speed for its author: the timed cases that agree, what limits them, registers and memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torchstone.feedback.arguments import arguments_of
from torchstone.feedback.feedback_fields import CasePerformance, ProfiledWork
from torchstone.reports import CaseResult
from torchstone.reports.safe_text import byte_size, one_line
from torchstone.schema import Attribution, KernelCode, Profile

_NAME_CHARACTERS = 60
_MOST_KERNELS = 4
"""Most device kernels in the notes on a case."""
_MOST_PROFILED = 12
"""Most kernels and operators of a profile."""
_MEMORY_FACTOR = 2
"""A note reports the peak memory of a call if it exceeds torch's by this factor."""


def performance_of(results: Iterable[CaseResult]) -> tuple[CasePerformance, ...]:
    """The speed of each timed case, the lowest speedup first."""
    found = [_case(item) for item in results if item.timing is not None]
    return tuple(sorted(found, key=lambda item: (item.speedup is None, item.speedup or 0.0)))


def _case(result: CaseResult) -> CasePerformance:
    record, timing, speedup, reached = result.record, result.timing, result.speedup, result.attainment
    resolved = timing is not None and speedup is not None
    return CasePerformance(
        operator=record.case.operator,
        arguments=arguments_of(record, record.case),
        kernel_ns=timing.candidate_ns if resolved and timing else None,
        reference_ns=timing.reference_ns if resolved and timing else None,
        speedup=speedup.ratio if speedup else None,
        speedup_low=speedup.low if speedup else None,
        speedup_high=speedup.high if speedup else None,
        outcome=speedup.outcome if speedup else "",
        of_limit_percent=reached.candidate_percent if reached else None,
        reference_of_limit_percent=reached.reference_percent if reached else None,
        bound=reached.bound if reached else "",
        notes=tuple(_notes(record.attribution)) if record.attribution else (),
    )


def _notes(found: Attribution) -> Iterator[str]:
    """Notes on a call: torch operators, launched kernels with registers and shared memory, and high peak memory."""
    if found.operators:
        called = ", ".join(f"{name} ({count}x)" for name, count in found.operators.items())
        yield one_line(f"torch operators called: {called}")
    for kernel in found.kernels[:_MOST_KERNELS]:
        yield f"launched {one_line(kernel.name, _NAME_CHARACTERS)} {kernel.launches}x, {kernel.device_ns / 1000:.3g} µs"
    yield from (text for code in found.code[:_MOST_KERNELS] if (text := _code(code)))
    peak, reference = found.peak_memory_bytes, found.reference_peak_memory_bytes
    if peak is not None and reference is not None and peak > _MEMORY_FACTOR * reference:
        yield f"allocates {byte_size(peak)} in a call, torch {byte_size(reference)}"


def _code(code: KernelCode) -> str:
    figures = (
        (code.registers_per_thread, "{} registers"),
        (code.spilled_registers or None, "{} spilled"),
        (code.shared_memory_bytes or None, "{} bytes of shared memory"),
        (code.warps, "{} warps"),
        (code.occupancy_percent, "occupancy {:.0f} %"),
    )
    told = ", ".join(form.format(value) for value, form in figures if value is not None)
    return f"{one_line(code.name, _NAME_CHARACTERS)}: {told}" if told else ""


def profiled_work(profile: Profile | None) -> tuple[ProfiledWork, ...]:
    """The kernels and operators in the results of the first profiler that saw any; empty if none did."""
    seen = next((result.kernels for result in profile.results if result.kernels), ()) if profile is not None else ()
    total = sum(kernel.profiled_ns for kernel in seen) or 1
    return tuple(
        ProfiledWork(
            name=one_line(kernel.name, _NAME_CHARACTERS),
            kind=kernel.kind,
            launches=kernel.launches,
            share_percent=round(100 * kernel.profiled_ns / total, 1),
        )
        for kernel in seen[:_MOST_PROFILED]
    )
