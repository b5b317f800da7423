"""Groups the cases in which a kernel could not be loaded or compiled, by the error message."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from torchstone.feedback.feedback_fields import CompileError
from torchstone.feedback.kernel_lines import compiler_error_at, exception_lines, raised_at
from torchstone.reports.safe_text import one_line
from torchstone.schema import Crashed, Record, SourceFiles

_COMPILER_EXCEPTIONS = (
    "BuildError", "CompilationError", "CompileError", "CompileTimeAssertionFailure", "UnsupportedLanguageConstruct",
    "PTXASError", "BackendCompilerFailed", "InductorError", "LoweringException",
)  # fmt: skip
"""Exceptions that compilers raise at a kernel's first call: Torchstone's, Triton's and torch's."""
_MOST_OUTPUT_LINES = 20
"""Lines of the traceback or of the compiler after the first that are kept."""
_MESSAGE_CHARACTERS = 600
"""Characters of the message that are kept."""


def is_compile_error(record: Record) -> bool:
    """Whether the kernel was never called: it did not load, or its compiler refused it."""
    verdict = record.verdict
    if not isinstance(verdict, Crashed) or verdict.kind != "exception":
        return False
    return verdict.stage == "load" or (verdict.stage == "compile" and _exception_name(verdict) in _COMPILER_EXCEPTIONS)


def _exception_name(verdict: Crashed) -> str:
    """``CompilationError`` of ``triton.compiler.errors.CompilationError: at 3:4``."""
    lines = exception_lines(verdict.traceback or "") or [verdict.message]
    return lines[0].partition(":")[0].rpartition(".")[2]


def compile_errors(records: Iterable[Record], source: SourceFiles | None) -> tuple[CompileError, ...]:
    """One error for each message, with the number of cases that failed by it; the most frequent first."""
    found = Counter(_error(record.verdict, source) for record in records if isinstance(record.verdict, Crashed))
    return tuple(msgspec.structs.replace(error, cases=count) for error, count in found.most_common())


def _error(verdict: Crashed, source: SourceFiles | None) -> CompileError:
    lines = exception_lines(verdict.traceback or "") or verdict.message.splitlines() or [""]
    place = compiler_error_at("\n".join(lines), source)
    if place.line is None:
        place = raised_at(verdict.traceback or "", source)
    return CompileError(
        message=one_line(lines[0], limit=_MESSAGE_CHARACTERS),
        file=place.file,
        line=place.line,
        source_line=one_line(place.text),
        output=tuple(one_line(line) for line in lines[1 : 1 + _MOST_OUTPUT_LINES] if line.strip()),
    )
