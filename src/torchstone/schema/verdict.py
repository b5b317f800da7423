"""The verdict of a job: agrees, disagrees, crashed and others. Each job gets exactly one; only `agrees` has times."""

from __future__ import annotations

from typing import Literal

import msgspec

from torchstone.schema.case import Case

Stage = Literal["start", "load", "compile", "check", "measure", "attribute"]
"""The stage of a job. In `start` no candidate code has run yet."""


OverBound = float | Literal["inf"]
"""An error divided by its bound. JSON has no infinity, so that is a word, which ``float`` reads."""


class ErrorStatistics(msgspec.Struct, frozen=True):
    """How far a result lies from the float64 reference. None: not comparable as numbers."""

    max_abs_error: float | None = None
    max_rel_error: float | None = None
    """With 1e-10 added to the reference's magnitude."""
    worst_over_bound: OverBound | None = None
    """Largest error divided by its bound; at most 1 for a result that agrees. Infinite where an element is wrong that
    is NaN or infinite, or has a bound of 0."""
    native_over_bound: float | None = None
    """The same for torch's own result in the native dtype."""
    smallest_wrong_error: float | None = None
    """Among the elements that are wrong, the one that lies closest."""
    largest_wrong_error: float | None = None
    """Among them, the one that lies farthest. Infinite ones are left out."""

    rms_over_bound: float | None = None
    """Root mean square of the errors of a whole result, divided by its bound."""
    bias_over_bound: float | None = None
    """Mean of the errors of a whole result, divided by its bound."""


class WrongResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is wrong with one result, in fields: the message of the verdict says the same in words."""

    kind: Literal["output", "argument"] = "output"
    """Whether it was returned, or is a tensor argument after the call."""
    position: int = 0
    """Which output, or which tensor argument."""
    text: str = ""
    """What is wrong where no element can be named. Without values of the call."""
    shape: tuple[int, ...] = ()
    elements: int = 0
    wrong: int = 0
    """How many elements are."""
    first_wrong: int | None = None
    """Index into the flattened result, or into the storage of an argument that must not change."""
    last_wrong: int | None = None
    worst_index: tuple[int, ...] | None = None
    got: str = ""
    """What stands at the worst place."""
    expected: str = ""
    inputs: dict[str, str] = {}
    """What the arguments held there, by name, where one element of each belongs to it."""


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
    """How many calls were drawn together."""
    index: int = 0
    """Which of them it was."""
    planted: str = ""
    """The plan of the values that were planted into it; empty: none."""
    others: tuple[BlockCall, ...] = ()
    """Other calls of the block, if a process died and the call is unknown."""
    inputs: str = ""
    """What kind of values it had, in words; empty: ordinary ones."""


class Agrees(msgspec.Struct, frozen=True, tag="agrees"):
    """Every checked call gave the right result."""

    errors: ErrorStatistics
    calls_verified: int
    """How many calls were compared, timed ones included."""


class Disagrees(msgspec.Struct, frozen=True, tag="disagrees"):
    """It ran and gave a wrong result."""

    stage: Stage
    reason: Literal["values", "precision", "nonfinite", "shape", "dtype", "structure", "mutation", "aliasing", "bounds"]
    """`precision`: every element is within its bound, but all errors together are too large or lean to one side.
    `bounds`: something was written outside every buffer."""
    message: str
    """Where, got, expected, error against what is allowed, the inputs there. Says how a hidden variant differs from the
    stated case if it was one."""
    errors: ErrorStatistics = ErrorStatistics()
    replay: Replay | None = None
    """The call that went wrong."""
    wrong: WrongResult | None = None
    """None: an older version made the record."""


class Cheated(msgspec.Struct, frozen=True, tag="cheated"):
    """A guard proved that it sought credit by something other than computing the operator."""

    stage: Stage
    guard: str
    """Which guard proved it."""
    message: str


class Crashed(msgspec.Struct, frozen=True, tag="crashed"):
    """It raised, died, exited, or was stopped for exceeding a resource limit."""

    stage: Stage
    kind: Literal["exception", "signal", "exit", "memory", "processes", "device"]
    message: str
    traceback: str | None = None
    exit_code: int | None = None
    signal: str | None = None
    replay: Replay | None = None
    """The call in which it happened; None: it happened in no call, or in one whose arguments are not known."""


class TimedOut(msgspec.Struct, frozen=True, tag="timed_out"):
    """A stage overran its deadline and was killed with every process it had started."""

    stage: Stage
    limit_seconds: float
    elapsed_seconds: float
    not_tried: str = ""
    """Why the case was not tried, where earlier cases of the kernel had timed out in this stage."""
    variant: str = ""
    """How the call that overran differed from the stated case; empty: in its values only."""


class Delegated(msgspec.Struct, frozen=True, tag="delegated"):
    """It is right, but torch or a library did the work, and the run asked for kernels of the author's own."""

    message: str
    """What did the work."""


class Unsupported(msgspec.Struct, frozen=True, tag="unsupported"):
    """The candidate says it does not do this case (NotImplementedError), or the reference cannot here."""

    by: Literal["candidate", "reference", "device"]
    reason: str


class Missing(msgspec.Struct, frozen=True, tag="missing"):
    """The backend has no kernel for this operator. It stays in every count."""

    reason: str


class Unjudged(msgspec.Struct, frozen=True, tag="unjudged"):
    """Torchstone itself failed repeatedly: nothing is known about the kernel. A resumed run tries again."""

    reason: str


Verdict = Agrees | Disagrees | Cheated | Crashed | TimedOut | Delegated | Unsupported | Missing | Unjudged


def verdict_name(verdict: Verdict) -> str:
    """The tag: ``agrees``, ``timed_out`` …"""
    return str(verdict.__struct_config__.tag)


_STAGE_TEXTS: dict[Stage, str] = {"compile": "first call"}
"""Stages that people know by another word: of most kernels the first call compiles nothing."""


def stage_text(stage: Stage) -> str:
    """The stage as messages name it."""
    return _STAGE_TEXTS.get(stage, stage)


def explain(verdict: Verdict) -> str:
    """One line for people."""
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
