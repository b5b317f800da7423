"""Data classes of feedback: everything that the author of a kernel, human or model, may see."""

from __future__ import annotations

from typing import Literal

import msgspec

from torchstone.schema import OverBound

Problem = Literal[
    "values", "precision", "nonfinite", "shape", "dtype", "structure", "mutation", "aliasing", "bounds",
    "exception", "signal", "exit", "memory", "processes", "device",
    "timed_out", "rejected", "delegated", "unsupported", "missing", "unjudged",
]  # fmt: skip
"""What went wrong in a case. The first row: a wrong result. The second: the kernel raised or its process ended."""

Moment = Literal["load", "first call", "check", "measure"]
"""When something happened."""


class CompileError(msgspec.Struct, frozen=True, omit_defaults=True):
    """The kernel could not be loaded or built: nothing was called."""

    message: str
    """The exception or the compiler's first error."""
    file: str = ""
    """The kernel's file in which it is; empty: unknown."""
    line: int | None = None
    source_line: str = ""
    """The text of that line."""
    output: tuple[str, ...] = ()
    """Further lines of the traceback or of the compiler."""
    cases: int = 1
    """How many cases failed by it."""


class ArgumentShape(msgspec.Struct, frozen=True, omit_defaults=True):
    """One argument of a call, without the values of tensors."""

    name: str
    dtype: str = ""
    """Of a tensor; empty for anything else."""
    shape: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None
    """In elements."""
    storage_offset: int = 0
    contiguous: bool = True
    value: str = ""
    """Of anything but a tensor, as written in Python. A drawn float of a hidden variant is named by its kind."""


class WrongElements(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a result is wrong, and by how much."""

    result: str
    """``output 0``, or the argument that was written."""
    shape: tuple[int, ...]
    wrong: int
    """How many elements are."""
    elements: int
    worst_index: tuple[int, ...] | None = None
    first_wrong: int | None = None
    """Row by row, counted from 0."""
    last_wrong: int | None = None
    got: str = ""
    """At the worst place: the value, or in a hidden variant its kind (``NaN``, ``zero``, ``positive`` …)."""
    expected: str = ""
    inputs: dict[str, str] = {}
    """What the arguments held there, by name; likewise. Only of operators that work element by element."""


class FailedCase(msgspec.Struct, frozen=True, omit_defaults=True):
    """One way in which a kernel failed, with the first call that showed it."""

    operator: str
    problem: Problem
    message: str
    """One line: what happened, what was expected."""
    during: Moment | None = None
    """None: not told."""
    arguments: tuple[ArgumentShape, ...] = ()
    """Of the call that failed."""
    is_variant: bool = False
    """Whether that call had other sizes, strides or scalars than the stated case."""
    values: str = ""
    """What kind of values the inputs had: ``inputs included NaN``; empty: ordinary ones."""
    wrong: WrongElements | None = None
    max_abs_error: float | None = None
    """None in a hidden call: if the kernel returned 0, the error would be the hidden value."""
    max_rel_error: float | None = None
    """In a hidden call its power of ten."""
    times_allowed: OverBound | None = None
    """The largest error divided by what is allowed, likewise. Infinite for NaN, infinities and what must be exact."""
    file: str = ""
    """Where the kernel raised."""
    line: int | None = None
    source_line: str = ""
    cases: int = 1
    """How many cases failed in the same way."""
    also_with: tuple[tuple[ArgumentShape, ...], ...] = ()
    """The arguments of a few of the others."""


class CasePerformance(msgspec.Struct, frozen=True, omit_defaults=True):
    """The speed of a case that agrees."""

    operator: str
    arguments: tuple[ArgumentShape, ...]
    kernel_ns: float | None = None
    """Per call. None: cannot be told from the cost of calling."""
    reference_ns: float | None = None
    speedup: float | None = None
    speedup_low: float | None = None
    """Of the 95 % interval."""
    speedup_high: float | None = None
    outcome: str = ""
    """``faster``, ``slower``, ``same`` or ``undecided``."""
    of_limit_percent: float | None = None
    """The device's least time over the kernel's. None: the limit is not known."""
    reference_of_limit_percent: float | None = None
    bound: str = ""
    """What sets that limit: ``memory``, ``compute`` or ``latency``."""
    notes: tuple[str, ...] = ()
    """Properties of the code: spilled registers, launches, memory."""


class ProfiledWork(msgspec.Struct, frozen=True, omit_defaults=True):
    """One kernel or operator in torch's profile of a call."""

    name: str
    kind: str
    launches: int
    share_percent: float
    """Of the profiled time."""


class FeedbackInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything that the author of one kernel is told about it."""

    operator: str
    right: bool
    """Every case agrees, of those that torch itself can compute here."""
    cases: int
    """That were judged."""
    right_cases: int
    excused_cases: int = 0
    """Cases that torch itself cannot compute here: they say nothing about the kernel."""
    right_with: tuple[tuple[ArgumentShape, ...], ...] = ()
    """The arguments of a few cases that are right, if others are not."""
    rejected: bool = False
    """Some result or time did not come from the call."""
    compile_errors: tuple[CompileError, ...] = ()
    failed_cases: tuple[FailedCase, ...] = ()
    """Equal failures together, those of stated cases first."""
    performance: tuple[CasePerformance, ...] = ()
    """One for each timed case, the slowest against the reference first."""
    overall_speedup: float | None = None
    """Geometric mean over the timed cases. None: not every case agrees, or none was timed."""
    overall_speedup_low: float | None = None
    overall_speedup_high: float | None = None
    profile: tuple[ProfiledWork, ...] = ()
    """What took the time, if a profile was asked for."""

    def to_text(self, max_tokens: int | None = None) -> str:
        """The feedback for a prompt: the most important first, cut at a line so that it fits ``max_tokens``."""
        from torchstone.feedback.text import text_of

        return text_of(self, max_tokens)
