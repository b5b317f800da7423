"""Describes a kernel's failed cases for its author, without seeds, hidden values or how a cheat was detected."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

import msgspec

from torchstone.feedback.arguments import arguments_of, gradient_names, same_memory, tensor_names
from torchstone.feedback.feedback_fields import FailedCase, Moment, Problem, WrongElements
from torchstone.feedback.kernel_lines import SourceLine, exception_lines, raised_at
from torchstone.feedback.value_kinds import kind_of, plainly
from torchstone.reports.safe_text import one_line
from torchstone.schema import (
    Case,
    Cheated,
    Crashed,
    Delegated,
    Disagrees,
    Missing,
    Record,
    Replay,
    SourceFiles,
    Stage,
    TimedOut,
    Unjudged,
    Unsupported,
    WrongResult,
)

REJECTED = "rejected: result or time did not come from this call"
"""The only text that the author of a cheat gets: how it was detected would teach the next cheat."""
_MOMENTS: dict[Stage, Moment] = {
    "load": "load", "compile": "first call", "check": "check", "measure": "measure", "attribute": "check",
}  # fmt: skip
_VARIANT_MESSAGE_PREFIX = "also tried with "
"""The judge's messages begin with this if a variant failed."""
_DECIMAL_NUMBER = re.compile(r"-?\d+\.\d*(?:[eE][-+]?\d+)?|-?\d+[eE][-+]?\d+")
_SIZE = re.compile(r"\[[^\]]*\]|\d+")
_MESSAGE_CHARACTERS = 400
_MOST_OTHER_CALLS = 3
"""Further calls that a group of equal failures lists beside the first."""


def failed_cases(records: Iterable[Record], source: SourceFiles | None) -> tuple[FailedCase, ...]:
    """Groups equal failures: those of stated cases first, then those of variants, each by the number of cases."""
    groups: dict[tuple[Any, ...], list[FailedCase]] = {}
    for record in records:
        failure = _failed(record, source)
        groups.setdefault(_kind_of_failure(failure), []).append(failure)
    return tuple(sorted(map(_merged, groups.values()), key=lambda item: (item.is_variant, -item.cases)))


def _kind_of_failure(item: FailedCase) -> tuple[Any, ...]:
    """Grouping key: equal for failures that differ only in which elements are wrong, by how much, or in shapes."""
    message = "" if item.wrong is not None else _SIZE.sub("#", item.message)
    kinds = None if item.wrong is None else (item.wrong.result, _special_values(item.wrong))
    return item.operator, item.problem, message, kinds, item.is_variant, item.values, item.file, item.line


def _special_values(wrong: WrongElements) -> tuple[str, str]:
    """Got and expected value of the worst element, with every finite number replaced by ``number``."""
    special = ("NaN", "inf", "-inf")
    got, expected = ((text if text in special else "number") for text in (wrong.got, wrong.expected))
    return got, expected


def _merged(group: list[FailedCase]) -> FailedCase:
    """One failure for equal ones: of a stated case if possible, with most elements, and some others' arguments."""
    first, *others = sorted(group, key=lambda item: (item.is_variant, -_elements(item)))
    return msgspec.structs.replace(
        first,
        cases=len(group),
        also_with=tuple(item.arguments for item in others[:_MOST_OTHER_CALLS] if item.arguments),
    )


def _elements(item: FailedCase) -> int:
    return item.wrong.elements if item.wrong is not None else 0


def _failed(record: Record, source: SourceFiles | None) -> FailedCase:
    verdict = record.verdict
    match verdict:
        case Disagrees():
            return _disagrees(record, verdict)
        case Crashed():
            return _crashed(record, verdict, source)
        case TimedOut(stage=stage, limit_seconds=limit, variant=variant):
            tried = f" with {variant}" if variant else ""
            text = f"the {_stage_name(stage)}{tried} was not finished after {limit:g} s, and the kernel was stopped"
            return _without_call(record, "timed_out", text, _MOMENTS.get(stage))
        case Cheated():
            return FailedCase(record.case.operator, "rejected", REJECTED)
        case Delegated(message=message):
            text = f"the work must be the kernel's own, and it was not: {message}"
            return _without_call(record, "delegated", text)
        case Unsupported():
            return _without_call(
                record, "unsupported", "the kernel raised NotImplementedError; it must compute every case"
            )
        case Missing():
            return FailedCase(record.case.operator, "missing", "there is no kernel for this operator")
        case _:
            assert isinstance(verdict, Unjudged)
            text = "not judged: Torchstone itself failed, which says nothing about the kernel"
            return _without_call(record, "unjudged", text)


def _stage_name(stage: Stage) -> str:
    names = {"compile": "first call", "check": "check", "measure": "measurement", "load": "import of the kernel"}
    return names.get(stage, "call")


def _without_call(record: Record, problem: Problem, message: str, during: Moment | None = None) -> FailedCase:
    """A failure that is not of one known call. It shows the stated arguments."""
    arguments = arguments_of(record, record.case)
    return FailedCase(record.case.operator, problem, one_line(message), during=during, arguments=arguments)


# ---- wrong results


def _disagrees(record: Record, verdict: Disagrees) -> FailedCase:
    call = _Call(record, verdict.replay, verdict.message)
    found = verdict.wrong
    errors = verdict.errors
    wrong = None if found is None else _wrong_elements(found, call)
    return FailedCase(
        record.case.operator,
        verdict.reason,
        one_line(_message(verdict, call, wrong)),
        **call.fields(),
        during=_MOMENTS.get(verdict.stage),
        wrong=wrong,
        max_abs_error=None if call.is_hidden else errors.max_abs_error,
        max_rel_error=call.coarse_error(errors.max_rel_error),
        times_allowed="inf" if errors.worst_over_bound == "inf" else call.coarse_error(errors.worst_over_bound),
    )


class _Call:
    """The call that failed, and which of its values the author may see."""

    def __init__(self, record: Record, replay: Replay | None, message: str) -> None:
        self.record = record
        self.case: Case | None = record.case if replay is None else replay.case
        if replay is None and message.startswith(_VARIANT_MESSAGE_PREFIX):
            self.case = None  # a variant failed, but the record does not say which one
        self.values = "" if replay is None else replay.inputs.partition(";")[0]
        self.is_variant = self.case is None or not same_memory(self.case, record.case)
        self.is_hidden = self.is_variant or (replay is not None and (bool(replay.planted) or bool(replay.inputs)))

    def fields(self) -> dict[str, Any]:
        arguments = () if self.case is None else arguments_of(self.record, self.case)
        return {"arguments": arguments, "is_variant": self.is_variant, "values": self.values}

    def tensor(self, position: int) -> str:
        names = () if self.case is None else tensor_names(self.record, self.case)
        return names[position] if position < len(names) else f"tensor argument {position}"

    def result(self, position: int) -> str:
        """The name of a result: ``output 0``, or ``gradient of other`` after the operator's own results."""
        found = gradient_names(self.record, self.case or self.record.case)
        place = position - found.results
        is_gradient = 0 <= place < len(found.arguments)
        return f"gradient of {found.arguments[place]}" if is_gradient else f"output {position}"

    def coarse_error(self, error: float | None) -> float | None:
        """The error. If the call is hidden, only its power of ten: if the kernel returned 0, the error is the value."""
        if not error or not self.is_hidden or not math.isfinite(error):
            return error
        return float(10.0 ** math.floor(math.log10(error)))

    def without_values(self, text: str) -> str:
        """The text. If the call is hidden, its decimal numbers are removed. Integers stay: sizes and dimensions."""
        return _DECIMAL_NUMBER.sub("…", text) if self.is_hidden else text

    def shown(self, value: str) -> str:
        return kind_of(value) if self.is_hidden else plainly(value)


def _wrong_elements(found: WrongResult, call: _Call) -> WrongElements | None:
    if not found.elements:
        return None
    return WrongElements(
        result=_result_name(found, call),
        shape=found.shape,
        wrong=found.wrong,
        elements=found.elements,
        worst_index=found.worst_index,
        first_wrong=found.first_wrong,
        last_wrong=found.last_wrong,
        got=call.shown(found.got) if found.got else "",
        expected=call.shown(found.expected) if found.expected else "",
        inputs={name: call.shown(value) for name, value in found.inputs.items()},
    )


def _result_name(found: WrongResult, call: _Call) -> str:
    return call.result(found.position) if found.kind == "output" else call.tensor(found.position)


def _message(verdict: Disagrees, call: _Call, wrong: WrongElements | None) -> str:
    found = verdict.wrong
    if found is None:
        return f"a wrong result ({verdict.reason})"
    if found.text and verdict.reason == "mutation" and wrong is not None:
        counted = f"{found.wrong} of {found.elements} elements of the argument {wrong.result} were changed"
        return f"{counted}, and the operator only reads it; write to a new tensor"
    if found.text:
        named = verdict.reason in ("bounds", "aliasing") or found.text.startswith("returned ")
        text = call.without_values(found.text)
        return text if named else f"{_result_name(found, call)}: {text}"
    if verdict.reason == "precision":
        return (
            f"{_result_name(found, call)}: every element is close enough, but the errors together are too large: "
            "lower precision inside than torch's, or a bias to one side"
        )
    are = "element is" if found.elements == 1 else "elements are"
    after = " after the call" if found.kind == "argument" else ""
    return f"{_result_name(found, call)}{after}: {found.wrong} of {found.elements} {are} wrong"


# ---- crashes


_SIGNALS = {
    "SIGSEGV": "the kernel read or wrote memory that is not its own",
    "SIGBUS": "the kernel read or wrote memory that is not its own",
    "SIGFPE": "an integer was divided by zero",
    "SIGILL": "the kernel ran an instruction that the processor does not have",
    "SIGABRT": "a library aborted: corrupted memory or a failed assertion",
    "SIGSYS": "the kernel made a system call that the sandbox refuses",
}


def _crashed(record: Record, verdict: Crashed, source: SourceFiles | None) -> FailedCase:
    call = _Call(record, verdict.replay, verdict.message)
    place = raised_at(verdict.traceback or "", source) if verdict.kind == "exception" else SourceLine()
    return FailedCase(
        record.case.operator,
        verdict.kind,
        one_line(_crash_message(verdict, call), limit=_MESSAGE_CHARACTERS),
        **call.fields(),
        during=_MOMENTS.get(verdict.stage),
        file=place.file,
        line=place.line,
        source_line=one_line(place.text),
    )


def _crash_message(verdict: Crashed, call: _Call) -> str:
    match verdict.kind:
        case "exception":
            text = " ".join(exception_lines(verdict.traceback or "")) or "the kernel raised an exception"
            return call.without_values(text)
        case "signal":
            why = _SIGNALS.get(verdict.signal or "")
            return f"the process died of {verdict.signal}" + (f": {why}" if why else "")
        case "exit":
            return f"the kernel ended its process with exit code {verdict.exit_code}; it must return a result"
        case "memory":
            return "the kernel used more memory than it may, and was stopped"
        case "processes":
            return "the kernel started more processes or threads than it may, and was stopped"
        case "device":
            return "the device reported an error: most often an access outside of a buffer, in this call or one before"
