"""Formats everything known about each case as text for the terminal. Names that come from kernels are escaped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from torchstone.reports.case_results import CaseResult
from torchstone.reports.failure_text import hanging, kernels_own_lines
from torchstone.reports.safe_text import byte_size, counted, microseconds, of_limit, one_line, ratio
from torchstone.schema import (
    Agrees,
    Attribution,
    DeviceState,
    KernelCode,
    KernelShare,
    Measurement,
    explain,
    verdict_name,
)

_NAME_CHARACTERS = 80
_NAME_COLUMNS = 18
_CLOCK_NOTES = {
    "device": " on the device",
    "calls": "",
    "calls against device": " (it cannot be captured, so its time includes launching it; the reference's does not)",
}


def matching(results: Iterable[CaseResult], text: str) -> list[CaseResult]:
    """The cases whose operator and arguments contain the text, or whose job key begins with it."""
    return [
        item
        for item in results
        if text in f"{item.record.case.operator} {item.record.case.label}" or item.record.job_key.startswith(text)
    ]


def details(results: Sequence[CaseResult], width: int | None = None) -> str:
    """A paragraph for each case, with lines of at most ``width`` columns; None: lines are not broken."""
    return "\n\n".join("\n".join(_paragraph(item, width)) for item in results)


def _paragraph(result: CaseResult, width: int | None) -> Iterator[str]:
    record = result.record
    yield f"{one_line(record.case.operator)}  {one_line(record.case.label)}"
    for name, text in _lines(result):
        line = f"  {name:<{_NAME_COLUMNS}}{one_line(text, limit=1000)}".rstrip()
        yield from hanging(line, " " * (_NAME_COLUMNS + 2), width)
    if not isinstance(record.verdict, Agrees):
        yield from kernels_own_lines(record.verdict, record.log_tail)


def _lines(result: CaseResult) -> Iterator[tuple[str, str]]:
    record = result.record
    yield "job", record.job_key
    if record.implementation.where:
        yield "kernel", record.implementation.where
    if record.added_imports:
        yield "added", "; ".join(record.added_imports)
    verdict = verdict_name(record.verdict)
    yield "verdict", verdict if verdict == "agrees" else f"{verdict}: {explain(record.verdict)}"
    yield from _speed_lines(result)
    if record.measurement is not None:
        yield from _measurement_lines(record.measurement)
    if record.attribution is not None:
        yield from _attribution_lines(record.attribution)


def _speed_lines(result: CaseResult) -> Iterator[tuple[str, str]]:
    timing, speedup, reached = result.timing, result.speedup, result.attainment
    if timing is None:
        return
    if speedup is None:
        yield "speedup", f"unresolved: {timing.unresolved}"
        return
    measured = result.record.measurement
    baseline = "torch.compile" if measured is not None and measured.baseline == "compile" else "reference"
    times = f"{microseconds(timing.candidate_ns)} µs, {baseline} {microseconds(timing.reference_ns)} µs"
    yield "time per call", times + _CLOCK_NOTES[timing.clocked]
    if timing.clocked != "calls" and timing.candidate_call_ns is not None and timing.reference_call_ns is not None:
        calls = timing.candidate_call_ns, timing.reference_call_ns
        yield "with its launch", f"{microseconds(calls[0])} µs, reference {microseconds(calls[1])} µs"
    yield "speedup", f"{ratio(speedup.ratio)} ({speedup.low:.3g} to {speedup.high:.3g}), {speedup.outcome}"
    if speedup.capped:
        yield "capped", speedup.capped
    if speedup.judged_low is not None and speedup.judged_high is not None:
        yield "judge's clock", f"{speedup.judged_low:.3g} to {speedup.judged_high:.3g}"
    if reached is not None:
        yield "of limit", of_limit(reached.candidate_percent, (reached.bound,), int(reached.over_limit))


def _measurement_lines(measured: Measurement) -> Iterator[tuple[str, str]]:
    before, after = _state(measured.before), _state(measured.after)
    if before or after:
        yield "device before", before or "–"
        yield "device after", after or "–"
    if measured.uncaptured:
        yield "not captured", measured.uncaptured
    others = max(measured.before.other_processes or 0, measured.after.other_processes or 0)
    if others:
        yield "others on device", counted(others, "process", "processes")
    if measured.energy_millijoules is not None:
        joules, seconds = measured.energy_millijoules / 1000, (measured.ended_unix_ns - measured.began_unix_ns) / 1e9
        mean = f", {joules / seconds:.0f} W on average" if seconds > 0 else ""
        yield "energy", f"{joules:.3g} J for all that was measured, in {seconds:.2g} s{mean}"
    if measured.disturbances:
        yield "disturbed rounds", _disturbed(measured)


def _disturbed(measured: Measurement) -> str:
    """``2 of 7: power cap 2, waited for a core 1``."""
    rounds = len({block.round for block in measured.blocks})
    reasons = Counter(reason for item in measured.disturbances for reason in item.reasons)
    return f"{len(measured.disturbances)} of {rounds}: {', '.join(f'{name} {n}' for name, n in reasons.most_common())}"


def _state(state: DeviceState) -> str:
    figures = (
        (state.sm_clock_mhz, "{} MHz"),
        (state.memory_clock_mhz, "memory {} MHz"),
        (state.temperature_celsius, "{} °C"),
        (state.power_watts, "{:.0f} W"),
        (state.cpu_mhz, "CPU {} MHz"),
        (state.load_average, "load {:.2f}"),
    )
    told = [form.format(value) for value, form in figures if value is not None]
    return ", ".join([*told, *state.throttle_reasons])


def _attribution_lines(found: Attribution) -> Iterator[tuple[str, str]]:
    if found.peak_memory_bytes is not None:
        reference = found.reference_peak_memory_bytes
        beside = "" if reference is None else f", reference {byte_size(reference)}"
        yield "peak memory", byte_size(found.peak_memory_bytes) + beside
    if found.operators:
        yield "torch operators", ", ".join(f"{name} ({count}x)" for name, count in found.operators.items())
    for kernel in found.kernels:
        yield "launched", _share(kernel)
    for code in found.code:
        yield "code", _code(code)
    if found.note:
        yield "not seen", found.note


def _share(kernel: KernelShare) -> str:
    name = one_line(kernel.name, limit=_NAME_CHARACTERS)
    return f"{name}: {kernel.kind}, {kernel.launches}x, {microseconds(kernel.device_ns)} µs"


def _code(code: KernelCode) -> str:
    figures = (
        (code.registers_per_thread, "{} registers"),
        (code.spilled_registers, "{} spilled"),
        (code.shared_memory_bytes, "{} B shared"),
        (code.warps, "{} warps"),
        (code.stages, "{} stages"),
        (_extent(code.grid), "grid {}"),
        (_extent(code.block), "block {}"),
        (code.occupancy_percent, "occupancy {:.0f} %"),
    )
    told = [form.format(value) for value, form in figures if value is not None]
    return f"{one_line(code.name, limit=_NAME_CHARACTERS)}: {', '.join(told) or 'no figures'}"


def _extent(sizes: tuple[int, int, int] | None) -> str | None:
    return None if sizes is None else "x".join(map(str, sizes))
