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
"""What went wrong in a case. First row: the result is wrong. Second row: the kernel raised or its process ended."""

Moment = Literal["load", "first call", "check", "measure"]
"""Stage in which something happened."""


class CompileError(msgspec.Struct, frozen=True, omit_defaults=True):
    """The kernel could not be loaded or built: nothing was called."""

    message: str
    """The exception or the compiler's first error."""
    file: str = ""
    """The kernel's file that contains the error; empty: unknown."""
    line: int | None = None
    source_line: str = ""
    """The text of that line."""
    output: tuple[str, ...] = ()
    """Further lines of the traceback or of the compiler."""
    cases: int = 1
    """Number of cases that failed by this error."""


class ArgumentShape(msgspec.Struct, frozen=True, omit_defaults=True):
    """One argument of a call, without the values of tensors."""

    name: str
    dtype: str = ""
    """Dtype of a tensor; empty for other arguments."""
    shape: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None
    """In elements."""
    storage_offset: int = 0
    contiguous: bool = True
    value: str = ""
    """Value of an argument that is no tensor, as Python writes it. A float drawn for a variant appears as its kind."""


class WrongElements(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a result is wrong, and by how much."""

    result: str
    """``output 0``, or the name of the argument that was written to."""
    shape: tuple[int, ...]
    wrong: int
    """Number of wrong elements."""
    elements: int
    worst_index: tuple[int, ...] | None = None
    first_wrong: int | None = None
    """Index of the first wrong element, row by row from 0."""
    last_wrong: int | None = None
    got: str = ""
    """Value at `worst_index`; in a hidden variant only its kind (``NaN``, ``zero``, ``positive`` …)."""
    expected: str = ""
    inputs: dict[str, str] = {}
    """Argument values (or kinds) at `worst_index`, by name. Only for elementwise operators."""


class FailedCase(msgspec.Struct, frozen=True, omit_defaults=True):
    """One way in which a kernel failed, with the first call that showed it."""

    operator: str
    problem: Problem
    message: str
    """One line: what happened, what was expected."""
    during: Moment | None = None
    """None: not known, or not shown."""
    arguments: tuple[ArgumentShape, ...] = ()
    """Arguments of the call that failed."""
    is_variant: bool = False
    """Whether that call had other sizes, strides or scalars than the stated case."""
    values: str = ""
    """Kind of the input values: ``inputs included NaN``; empty: ordinary values."""
    wrong: WrongElements | None = None
    max_abs_error: float | None = None
    """None in a hidden call: if the kernel returned 0, the error would be the hidden value."""
    max_rel_error: float | None = None
    """In a hidden call only its power of ten."""
    times_allowed: OverBound | None = None
    """The largest error divided by its bound; in a hidden call only the power of ten. Infinite for NaN, infinities and
    results that must be exact."""
    file: str = ""
    """File in which the kernel raised."""
    line: int | None = None
    source_line: str = ""
    cases: int = 1
    """Number of cases that failed in the same way."""
    also_with: tuple[tuple[ArgumentShape, ...], ...] = ()
    """Arguments of a few of the other cases."""


class CasePerformance(msgspec.Struct, frozen=True, omit_defaults=True):
    """The speed of a case that agrees."""

    operator: str
    arguments: tuple[ArgumentShape, ...]
    kernel_ns: float | None = None
    """Time per call. None: too short to be separated from the overhead of calling."""
    reference_ns: float | None = None
    speedup: float | None = None
    speedup_low: float | None = None
    """Lower end of the 95 % interval."""
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
    """Share of the profiled time."""


class FeedbackInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything that the author of a kernel may see of its results."""

    operator: str
    right: bool
    """Whether every case agrees, except those that torch itself cannot compute here."""
    cases: int
    """Number of judged cases."""
    right_cases: int
    excused_cases: int = 0
    """Cases that torch itself cannot compute here: they say nothing about the kernel."""
    right_with: tuple[tuple[ArgumentShape, ...], ...] = ()
    """Arguments of a few right cases, if other cases are wrong."""
    rejected: bool = False
    """Whether some result or time did not come from the call."""
    compile_errors: tuple[CompileError, ...] = ()
    failed_cases: tuple[FailedCase, ...] = ()
    """Equal failures are merged; those of stated cases come first."""
    performance: tuple[CasePerformance, ...] = ()
    """One for each timed case, the lowest speedup first."""
    overall_speedup: float | None = None
    """Geometric mean over the timed cases. None: not every case agrees, or none was timed."""
    overall_speedup_low: float | None = None
    overall_speedup_high: float | None = None
    profile: tuple[ProfiledWork, ...] = ()
    """The kernels and operators of a profile, if there is one."""

    def to_text(self, max_tokens: int | None = None) -> str:
        """The feedback for a prompt: the most important first, cut at a line so that it fits ``max_tokens``."""
        from torchstone.feedback.text import text_of

        return text_of(self, max_tokens)
