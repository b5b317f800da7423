"""The verdict of a job: agrees, disagrees, crashed and others. Each job gets exactly one; only `agrees` has times."""

from __future__ import annotations

from typing import Literal

import msgspec

from torchstone.schema.case import Case

Stage = Literal["start", "load", "compile", "check", "measure", "attribute"]
"""The stage of a job. In `start` no candidate code has run yet."""


OverBound = float | Literal["inf"]
"""An error divided by its bound. JSON has no infinity, so infinity is the text ``inf``, which ``float`` accepts."""


class ErrorStatistics(msgspec.Struct, frozen=True):
    """How far a result lies from the float64 reference. None: not comparable as numbers."""

    max_abs_error: float | None = None
    max_rel_error: float | None = None
    """Largest relative error, with 1e-10 added to the reference's magnitude."""
    worst_over_bound: OverBound | None = None
    """Largest error divided by its bound; at most 1 for a result that agrees. Infinite if a wrong element is NaN or
    infinite, or has a bound of 0."""
    native_over_bound: float | None = None
    """The same quotient for torch's own result in the native dtype."""
    smallest_wrong_error: float | None = None
    """Smallest finite error among the wrong elements."""
    largest_wrong_error: float | None = None
    """Largest finite error among the wrong elements."""

    rms_over_bound: float | None = None
    """Root mean square of the errors of a whole result, divided by its bound."""
    bias_over_bound: float | None = None
    """Mean of the errors of a whole result, divided by its bound."""


class WrongResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is wrong with one result, as fields. The verdict's message has the same content as text."""

    kind: Literal["output", "argument"] = "output"
    """Whether the call returned it, or it is a tensor argument after the call."""
    position: int = 0
    """Number of the output, or of the tensor argument."""
    text: str = ""
    """What is wrong, if no element can be named. Has no values of the call."""
    shape: tuple[int, ...] = ()
    elements: int = 0
    """Number of elements."""
    wrong: int = 0
    """Number of wrong elements."""
    first_wrong: int | None = None
    """Index of the first wrong element in the flattened result, or in the storage of a read-only argument."""
    last_wrong: int | None = None
    worst_index: tuple[int, ...] | None = None
    """Index of the worst element."""
    got: str = ""
    """The result's value at this index."""
    expected: str = ""
    """The expected value at this index."""
    inputs: dict[str, str] = {}
    """Values of the arguments at this index, by name, if one element of each belongs to the wrong element."""


class BlockCall(msgspec.Struct, frozen=True):
    """Another call of the same case that was made together with a failed one. The fields are those of `Replay`."""

    seed: int
    count: int = 1
    index: int = 0
    planted: str = ""


class Replay(msgspec.Struct, frozen=True):
    """All that is needed to repeat one call with the same values, on the same kind of device."""

    case: Case
    """The stated case, or the hidden variant of it that was called."""
    seed: int
    count: int = 1
    """Number of calls that were drawn together."""
    index: int = 0
    """Index of the call among them."""
    planted: str = ""
    """Name of the plan of the planted values; empty: none."""
    others: tuple[BlockCall, ...] = ()
    """Other calls of the block, if a process died and the failing call is unknown."""
    inputs: str = ""
    """The kind of values that the call had, in words; empty: ordinary ones."""


class Agrees(msgspec.Struct, frozen=True, tag="agrees"):
    """Every checked call returned the right result."""

    errors: ErrorStatistics
    calls_verified: int
    """Number of compared calls, including timed ones."""


class Disagrees(msgspec.Struct, frozen=True, tag="disagrees"):
    """The kernel ran and returned a wrong result."""

    stage: Stage
    reason: Literal["values", "precision", "nonfinite", "shape", "dtype", "structure", "mutation", "aliasing", "bounds"]
    """`precision`: every element is within its bound, but all errors together are too large or biased.
    `bounds`: memory outside of all buffers was written."""
    message: str
    """Index, result, expected value, error, bound and the inputs there. For a hidden variant, also how it differs from
    the stated case."""
    errors: ErrorStatistics = ErrorStatistics()
    replay: Replay | None = None
    """The call that went wrong."""
    wrong: WrongResult | None = None
    """None: an older version made the record."""


class Cheated(msgspec.Struct, frozen=True, tag="cheated"):
    """A guard proved that the kernel sought credit without computing the operator."""

    stage: Stage
    guard: str
    """Name of the guard."""
    message: str


class Crashed(msgspec.Struct, frozen=True, tag="crashed"):
    """The kernel raised, died, exited, or was stopped because it exceeded a resource limit."""

    stage: Stage
    kind: Literal["exception", "signal", "exit", "memory", "processes", "device"]
    message: str
    traceback: str | None = None
    exit_code: int | None = None
    signal: str | None = None
    replay: Replay | None = None
    """The call that crashed; None: the crash was not in a call, or the call's arguments are unknown."""


class TimedOut(msgspec.Struct, frozen=True, tag="timed_out"):
    """A stage exceeded its deadline. The worker was killed with every process that it had started."""

    stage: Stage
    limit_seconds: float
    elapsed_seconds: float
    not_tried: str = ""
    """Why the case was not tried, if earlier cases of the kernel had timed out in this stage; empty: it was tried."""
    variant: str = ""
    """How the call that timed out differed from the stated case; empty: in its values only."""


class Delegated(msgspec.Struct, frozen=True, tag="delegated"):
    """The kernel is right, but torch or a library did the work, and the run requires the author's own code."""

    message: str
    """What did the work."""


class Unsupported(msgspec.Struct, frozen=True, tag="unsupported"):
    """The candidate raised NotImplementedError, or the reference or the device cannot compute this case."""

    by: Literal["candidate", "reference", "device"]
    reason: str


class Missing(msgspec.Struct, frozen=True, tag="missing"):
    """The backend has no kernel for this operator. All counts include such cases."""

    reason: str


class Unjudged(msgspec.Struct, frozen=True, tag="unjudged"):
    """Torchstone itself failed repeatedly, so nothing is known about the kernel. A resumed run tries again."""

    reason: str


Verdict = Agrees | Disagrees | Cheated | Crashed | TimedOut | Delegated | Unsupported | Missing | Unjudged


def verdict_name(verdict: Verdict) -> str:
    """The tag: ``agrees``, ``timed_out`` …"""
    return str(verdict.__struct_config__.tag)


_STAGE_TEXTS: dict[Stage, str] = {"compile": "first call"}
"""Stages with another name in messages: the first call of most kernels compiles nothing."""


def stage_text(stage: Stage) -> str:
    """The name of a stage in messages."""
    return _STAGE_TEXTS.get(stage, stage)


def explain(verdict: Verdict) -> str:
    """One line with the verdict's reason, for messages and tables."""
    return " ".join(_explain(verdict).split())


def _explain(verdict: Verdict) -> str:
    match verdict:
        case Agrees(calls_verified=calls):
            return f"{calls} calls verified"
        case Disagrees(message=message, stage=stage) | Crashed(message=message, stage=stage):
            return f"{stage_text(stage)}: {message}"
        case Cheated(guard=guard, message=message, stage=stage):
            return f"{stage_text(stage)}: {guard}: {message}"
        case TimedOut(stage=stage, not_tried=reason) if reason:
            return f"{stage_text(stage)}: {reason}"
        case TimedOut(stage=stage, limit_seconds=limit, elapsed_seconds=elapsed, variant=variant):
            tried = f"also tried with {variant}, and there: " if variant else ""
            return f"{stage_text(stage)}: {tried}stopped after {elapsed:.1f} s (limit {limit:g} s)"
        case Unsupported(by=by, reason=reason):
            return f"{by}: {reason}"
        case Delegated(message=message):
            return message
        case Missing(reason=reason) | Unjudged(reason=reason):
            return reason
