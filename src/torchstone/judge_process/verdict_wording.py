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

_NAMED_SIGNALS = frozenset(int(known) for known in signal.Signals)
_MOST_REPLAYED_CALLS = 64
"""Most calls of a block that a replay has. Timed blocks have up to a thousand calls."""


def replay_of(call: DrawnCall, stated: schema.Case | None = None) -> schema.Replay:
    """The replay of a call. ``stated``: the stated case, if the call's case may be a variant of it."""
    details = inputs_of(call.planted) or (scale(stated, call.case) if stated is not None else "")
    return schema.Replay(call.case, call.seed, call.count, call.index, call.planted, inputs=details)


def replay_of_block(calls: Sequence[DrawnCall]) -> schema.Replay:
    """The replay of calls of which an unknown one ended the process."""
    first, *others = calls[:_MOST_REPLAYED_CALLS]
    same = (call for call in others if call.case == first.case)
    details = tuple(schema.BlockCall(call.seed, call.count, call.index, call.planted) for call in same)
    return msgspec.structs.replace(replay_of(first), others=details)


def odd_structure(stage: schema.Stage, wanted: Expected, done: Done) -> schema.Verdict:
    """The verdict on results of another number, type, dtype or shape than the operator's."""
    returned = ", ".join(_leaf_text(leaf) for leaf in done.odd_leaves) or "nothing"
    expected = ", ".join(_expected_text(output) for output in wanted.outputs) or "nothing"
    reason = "structure"
    if len(done.odd_leaves) == len(wanted.outputs):
        for leaf, output in zip(done.odd_leaves, wanted.outputs, strict=True):
            if isinstance(leaf, TensorLeaf) and isinstance(output.native, torch.Tensor):
                if leaf.dtype != str(output.native.dtype).removeprefix("torch."):
                    reason = "dtype"
                elif leaf.shape != tuple(output.native.shape):
                    reason = "shape"
    message = f"returned {returned}; expected {expected}"
    wrong = schema.WrongResult(text=message)
    return schema.Disagrees(stage, reason, message, replay=replay_of(wanted.call), wrong=wrong)  # type: ignore[arg-type]


def wrong_place(stage: schema.Stage, found: GuardFinding, replay: schema.Replay | None = None) -> schema.Disagrees:
    """The verdict on a result in memory where it must not lie, or on a write outside every buffer."""
    wrong = schema.WrongResult(text=found.message)
    return schema.Disagrees(stage, found.reason, found.message, replay=replay, wrong=wrong)


def verdict_for_reply(stage: schema.Stage, reply: Failed) -> schema.Verdict:
    """The verdict if the candidate raised and its worker reported that."""
    if reply.kind == "unsupported":
        return schema.Unsupported("candidate", reply.message)
    return schema.Crashed(stage, reply.kind, reply.message, reply.traceback or None)


def verdict_for_ending(stage: schema.Stage, exit_code: int | None, signal_number: int | None) -> schema.Verdict:
    """The verdict if the candidate's worker ended."""
    if signal_number is not None:
        name = signal_name(signal_number)
        return schema.Crashed(stage, "signal", f"died of {name}", signal=name)
    return schema.Crashed(stage, "exit", f"ended its process with exit code {exit_code}", exit_code=exit_code)


def signal_name(number: int) -> str:
    """``SIGSEGV``; real-time signals have numbers only."""
    return signal.Signals(number).name if number in _NAMED_SIGNALS else f"signal {number}"


def delegated(found: schema.Attribution) -> str:
    """What work torch or a library did, as text; empty if none."""
    if found.note:
        return f"it is unknown what did the work ({found.note})"
    share = found.library_share
    if share:
        names = ", ".join(kernel.name[:60] for kernel in found.kernels if kernel.kind == "library")
        return f"{share:.0%} of the device time went to library kernels: {names}"
    if found.operators:
        names = ", ".join(f"{name} ({count}x)" for name, count in found.operators.items())
        return f"torch's own operators did work: {names}"
    return ""


def about_inputs(replay: schema.Replay, stated: schema.Case) -> str:
    """Planted or scaled values as text: `` (inputs included values up to ±100)``; empty if there are none."""
    details = inputs_of(replay.planted) or scale(stated, replay.case)
    return f" ({details})" if details else ""


def on_variant(verdict: schema.Verdict, stated: schema.Case, variant: schema.Case) -> schema.Verdict:
    """The verdict, with how the variant differs from the stated case in its text. Also if the candidate refuses it."""
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
