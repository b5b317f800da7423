"""Turns what was observed of a candidate into a verdict with its message and its replay. Touches no worker."""

from __future__ import annotations

import signal
from collections.abc import Sequence

import msgspec
import torch

from torchstone import schema
from torchstone.judge_process.block_guards import GuardFinding
from torchstone.judge_process.variant_wording import difference, scale
from torchstone.judging import DrawnCall, Expected, inputs_of
from torchstone.protocol.plain_values import received_plain
from torchstone.protocol.replies import Done, Failed, OtherLeaf, PlainLeaf, TensorLeaf

_NAMED = frozenset(int(known) for known in signal.Signals)
_MOST_OF_BLOCK = 64
"""Calls of a block that a record names: timed blocks have up to a thousand."""


def replay_of(call: DrawnCall, stated: schema.Case | None = None) -> schema.Replay:
    """What it takes to make a call again. ``stated``: the case that it may be a variant of."""
    told = inputs_of(call.planted) or (scale(stated, call.case) if stated is not None else "")
    return schema.Replay(call.case, call.seed, call.count, call.index, call.planted, inputs=told)


def replay_of_block(calls: Sequence[DrawnCall]) -> schema.Replay:
    """What it takes to make calls again of which one ended the process, nobody knows which."""
    first, *others = calls[:_MOST_OF_BLOCK]
    same = (call for call in others if call.case == first.case)
    told = tuple(schema.BlockCall(call.seed, call.count, call.index, call.planted) for call in same)
    return msgspec.structs.replace(replay_of(first), others=told)


def odd_structure(stage: schema.Stage, wanted: Expected, done: Done) -> schema.Verdict:
    """A result that is not what the operator returns."""
    got = ", ".join(_leaf_text(leaf) for leaf in done.odd_leaves) or "nothing"
    should = ", ".join(_expected_text(output) for output in wanted.outputs) or "nothing"
    reason = "structure"
    if len(done.odd_leaves) == len(wanted.outputs):
        for leaf, output in zip(done.odd_leaves, wanted.outputs, strict=True):
            if isinstance(leaf, TensorLeaf) and isinstance(output.native, torch.Tensor):
                if leaf.dtype != str(output.native.dtype).removeprefix("torch."):
                    reason = "dtype"
                elif leaf.shape != tuple(output.native.shape):
                    reason = "shape"
    message = f"returned {got}; expected {should}"
    wrong = schema.WrongResult(text=message)
    return schema.Disagrees(stage, reason, message, replay=replay_of(wanted.call), wrong=wrong)  # type: ignore[arg-type]


def wrong_place(stage: schema.Stage, found: GuardFinding, replay: schema.Replay | None = None) -> schema.Disagrees:
    """A result that lies where it must not, or a write outside every buffer."""
    wrong = schema.WrongResult(text=found.message)
    return schema.Disagrees(stage, found.reason, found.message, replay=replay, wrong=wrong)


def verdict_for_reply(stage: schema.Stage, reply: Failed) -> schema.Verdict:
    if reply.kind == "unsupported":
        return schema.Unsupported("candidate", reply.message)
    return schema.Crashed(stage, reply.kind, reply.message, reply.traceback or None)


def verdict_for_ending(stage: schema.Stage, exit_code: int | None, signal_number: int | None) -> schema.Verdict:
    if signal_number is not None:
        name = signal_name(signal_number)
        return schema.Crashed(stage, "signal", f"died of {name}", signal=name)
    return schema.Crashed(stage, "exit", f"ended its process with exit code {exit_code}", exit_code=exit_code)


def signal_name(number: int) -> str:
    """``SIGSEGV``; real-time signals have numbers only."""
    return signal.Signals(number).name if number in _NAMED else f"signal {number}"


def delegated(found: schema.Attribution) -> str:
    """What torch or a library did of the work, in words; empty if nothing."""
    if found.note:
        return f"what did the work could not be seen ({found.note})"
    share = found.library_share
    if share:
        names = ", ".join(kernel.name[:60] for kernel in found.kernels if kernel.kind == "library")
        return f"{share:.0%} of the device time went to library kernels: {names}"
    if found.operators:
        names = ", ".join(f"{name} ({count}x)" for name, count in found.operators.items())
        return f"torch's own operators did work: {names}"
    return ""


def about_inputs(replay: schema.Replay, stated: schema.Case) -> str:
    """`` (inputs included values up to ±100)``; empty for a call on ordinary values."""
    told = inputs_of(replay.planted) or scale(stated, replay.case)
    return f" ({told})" if told else ""


def on_variant(verdict: schema.Verdict, stated: schema.Case, variant: schema.Case) -> schema.Verdict:
    """The verdict, saying how the variant differs from the stated case. Refusing a variant is a failure like any."""
    differs = difference(stated, variant)
    where = f"also tried with {differs}, and there: "
    match verdict:
        case schema.Disagrees() | schema.Crashed() | schema.Cheated():
            return msgspec.structs.replace(verdict, message=where + verdict.message)
        case schema.Unsupported():
            return msgspec.structs.replace(verdict, reason=where + verdict.reason)
        case schema.TimedOut():
            return msgspec.structs.replace(verdict, variant=differs)
        case _:
            return verdict


def _leaf_text(leaf: TensorLeaf | PlainLeaf | OtherLeaf) -> str:
    match leaf:
        case TensorLeaf(dtype=dtype, shape=shape, device=device):
            return f"tensor {list(shape)} {dtype} on {device}"
        case PlainLeaf(value=value):
            return repr(received_plain(value))
        case OtherLeaf(type_name=name):
            return f"a {name}"


def _expected_text(output: object) -> str:
    native = getattr(output, "native", None)
    argument = getattr(output, "is_argument", None)
    if argument is not None:
        return f"tensor argument {argument} itself"
    if isinstance(native, torch.Tensor):
        new = "a new " if getattr(output, "fresh", False) else ""
        return f"{new}tensor {list(native.shape)} {str(native.dtype).removeprefix('torch.')}"
    return f"a plain {type(native).__name__}"
