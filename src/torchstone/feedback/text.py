"""Formats feedback as text for a prompt: the most important first, cut at a line if it is too long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from torchstone.feedback.feedback_fields import (
    ArgumentShape,
    CasePerformance,
    CompileError,
    FailedCase,
    FeedbackInfo,
    ProfiledWork,
    WrongElements,
)
from torchstone.reports.safe_text import counted, microseconds, over_bound, ratio
from torchstone.schema import forward_operator, is_gradient

BYTES_PER_TOKEN = 3
"""Bytes per token for estimates. Tokenizers of today's models make fewer tokens of such text."""
LEAST_TOKENS = 60
"""Smallest limit that is applied: a shorter feedback could not name the failure."""
_CUT_NOTE = "… cut to the allowed length"
_SCATTERED_SHARE = 0.9
"""If the first and last wrong element are further apart than this share of the result, they count as scattered."""
_LEAST_HIDDEN_RELATIVE_ERROR = 1e-3
"""Relative errors of at least this size are not shown: they are more than rounding."""


def text_of(info: FeedbackInfo, max_tokens: int | None = None) -> str:
    """Paragraphs, joined by empty lines."""
    paragraphs = ["\n".join(lines) for lines in _paragraphs(info) if lines]
    return "\n\n".join(paragraphs if max_tokens is None else _within_tokens(paragraphs, max_tokens))


def _paragraphs(info: FeedbackInfo) -> Iterator[list[str]]:
    yield _heading(info)
    for error in info.compile_errors:
        yield list(_compile_error(error))
    for number, case in enumerate(info.failed_cases, 1):
        yield list(_failed_case(case, info.operator, number if len(info.failed_cases) > 1 else None))
    if info.right_with and info.failed_cases and not info.rejected:
        yield ["Right with, among others:", *(f"  {_arguments(each)}" for each in info.right_with)]
    yield list(_performance(info))
    yield list(_profile(info.profile))


def _within_tokens(paragraphs: Sequence[str], max_tokens: int) -> Iterator[str]:
    """The leading paragraphs that fit, and of the next one the lines that fit."""
    room = max(max_tokens, LEAST_TOKENS) * BYTES_PER_TOKEN
    if _bytes("\n\n".join(paragraphs)) <= room:
        yield from paragraphs
        return
    room -= _bytes(_CUT_NOTE) + 2
    for paragraph in paragraphs:
        kept = _lines_within(paragraph, room)
        if kept:
            yield kept
        if kept != paragraph:
            break
        room -= _bytes(kept) + 2
    yield _CUT_NOTE


def _lines_within(paragraph: str, room: int) -> str:
    kept: list[str] = []
    for line in paragraph.split("\n"):
        left = room - sum(_bytes(each) + 1 for each in kept)
        if _bytes(line) <= left:
            kept.append(line)
            continue
        if not kept and left > 0:  # one long message: its beginning says what happened
            kept.append(line.encode()[:left].decode(errors="ignore"))
        break
    return "\n".join(kept)


def _bytes(text: str) -> int:
    return len(text.encode())


def profile_text(work: Sequence[ProfiledWork]) -> str:
    """The text of a profile alone."""
    return "\n".join(_profile(work))


# ---- the heading


def _heading(info: FeedbackInfo) -> list[str]:
    return [f"{_operator_text(info.operator)}: {_result(info)}"]


def _operator_text(operator: str) -> str:
    """The operator's name; ``gradient of …`` for gradients, whose names only Torchstone knows."""
    return f"gradient of {forward_operator(operator)}" if is_gradient(operator) else operator


def _result(info: FeedbackInfo) -> str:
    judged = info.cases - info.excused_cases
    if info.compile_errors and not info.right_cases:
        return "the kernel does not load. Nothing was called."
    if info.rejected:
        return "the kernel gets no credit."
    if not info.right:
        return f"not right. {info.right_cases} of {counted(judged, 'case')} agree with PyTorch."
    right = f"right in all {judged} cases." if judged > 1 else "right in its one case."
    return f"{right} {_speed(info)}".rstrip()


def _speed(info: FeedbackInfo) -> str:
    if info.overall_speedup is None:
        return ""
    low, high = info.overall_speedup_low, info.overall_speedup_high
    interval = f" (95 % interval {low:.2f} to {high:.2f})" if low is not None and high is not None else ""
    return f"Speed: {ratio(info.overall_speedup)} PyTorch's{interval}."


# ---- failures


def _compile_error(error: CompileError) -> Iterator[str]:
    yield f"Error while loading the kernel ({counted(error.cases, 'case')}): {error.message}"
    if error.file:
        line = f", line {error.line}" if error.line is not None else ""
        yield f"  at {error.file}{line}" + (f": {error.source_line}" if error.source_line else "")
    yield from (f"  {line}" for line in error.output)


def _failed_case(case: FailedCase, operator: str, number: int | None) -> Iterator[str]:
    if case.problem == "rejected":
        yield f"{case.message}. Compute the result in every call, from the arguments of that call."
        return
    count = f" in {counted(case.cases, 'case')}" if case.cases > 1 else ""
    name = f"Failure {number}" if number is not None else "Failure"
    during = f", {case.during}" if case.during else ""
    during += f", {_operator_text(case.operator)}" if case.operator != operator else ""
    yield f"{name}{count} ({case.problem}{during}): {case.message}."
    if case.arguments:
        kind = "a variant of a stated case, with other sizes, strides or scalars" if case.is_variant else "called with"
        yield f"  {kind}: {_arguments(case.arguments)}"
    if case.values:
        yield f"  values: {case.values}"
    if case.wrong is not None:
        yield from (f"  {line}" for line in _wrong(case.wrong, case))
    if case.file:
        line = f", line {case.line}" if case.line is not None else ""
        yield f"  at {case.file}{line}" + (f": {case.source_line}" if case.source_line else "")
    if case.also_with:
        yield "  also with: " + "; ".join(map(_arguments, case.also_with))


def _wrong(wrong: WrongElements, case: FailedCase) -> Iterator[str]:
    span = _span(wrong)
    if span:
        yield span
    if wrong.worst_index is not None and wrong.got:
        there = ", ".join(f"{name} = {value}" for name, value in wrong.inputs.items())
        inputs = f", where {there}" if there else ""
        yield f"for example at {list(wrong.worst_index)}: got {wrong.got}, expected {wrong.expected}{inputs}"
    errors = _errors(case)
    if errors:
        yield errors


def _span(wrong: WrongElements) -> str:
    """Where the wrong elements lie: within a range, at the end, or scattered. Shows a missing tail or tile."""
    first, last = wrong.first_wrong, wrong.last_wrong
    if first is None or last is None or wrong.elements == 1 or not wrong.got:
        return ""
    if wrong.wrong == wrong.elements:
        return f"all {wrong.elements} elements are wrong"
    if first == last:
        return f"the wrong element is number {first} of {wrong.elements}, counted from 0 row by row"
    within = last - first + 1
    if _SCATTERED_SHARE * wrong.elements < within:
        return "the wrong elements are scattered over the whole result"
    where = f"numbers {first} to {last} of {wrong.elements}, counted from 0 row by row"
    at_end = f": all in the last {within}" if last == wrong.elements - 1 and 2 * within < wrong.elements else ""
    return f"the wrong elements lie within {where}{at_end}"


def _errors(case: FailedCase) -> str:
    parts = []
    if case.max_abs_error:
        parts.append(f"largest absolute error of the result {case.max_abs_error:.3g}")
    if case.max_rel_error and case.max_rel_error < _LEAST_HIDDEN_RELATIVE_ERROR:
        parts.append(f"relative {case.max_rel_error:.2g}")
    if parts and case.times_allowed is not None and case.times_allowed != "inf":
        parts.append(f"{over_bound(case.times_allowed)} times the allowed error")
    return ", ".join(parts)


def _arguments(arguments: Iterable[ArgumentShape]) -> str:
    return ", ".join(map(_argument, arguments))


def _argument(item: ArgumentShape) -> str:
    if item.shape is None:
        return f"{item.name}={item.value}"
    memory = "" if item.contiguous else f", strides {list(item.strides or ())}, not contiguous"
    offset = f", storage offset {item.storage_offset}" if item.storage_offset else ""
    return f"{item.name}: {item.dtype} {list(item.shape)}{memory}{offset}"


# ---- speed


def _performance(info: FeedbackInfo) -> Iterator[str]:
    if not info.performance:
        return
    yield "Speed of the timed cases, the slowest against PyTorch first:"
    for case in info.performance:
        yield f"  {_arguments(case.arguments)}: {_time(case)}"
    notes = dict.fromkeys(note for case in info.performance for note in case.notes)
    yield from (f"  {note}" for note in notes)


def _time(case: CasePerformance) -> str:
    if case.speedup is None or case.speedup_low is None or case.speedup_high is None:
        return "too short to be separated from the overhead of calling"
    times = f"{microseconds(case.kernel_ns)} µs, PyTorch {microseconds(case.reference_ns)} µs"
    interval = f"{ratio(case.speedup)} ({case.speedup_low:.2f} to {case.speedup_high:.2f}, {case.outcome})"
    return f"{times}, {interval}{_limit(case)}"


def _limit(case: CasePerformance) -> str:
    if case.of_limit_percent is None:
        return ""
    torchs = f", PyTorch {case.reference_of_limit_percent:.0f} %" if case.reference_of_limit_percent else ""
    return f"; {case.of_limit_percent:.0f} % of what the device allows{torchs}; bound by {case.bound}"


def _profile(work: Sequence[ProfiledWork]) -> Iterator[str]:
    if not work:
        return
    yield "Where the time goes, by torch's profiler:"
    for item in work:
        yield f"  {item.share_percent:.1f} % {item.kind} {item.name}, {counted(item.launches, 'launch', 'launches')}"
