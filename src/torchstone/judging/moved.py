"""Operators that only move values: their results are the same bits somewhere else, the sign of a zero included.

Numbers are compared as numbers, and -0.0 equals 0.0; after arithmetic nothing else would be fair. But a copy that loses
the sign is no copy. Whether an operator only moves is not looked up but tried: one that does gives the same bits when
it is handed the bit patterns as integers. One that compares or computes (``amax``, ``relu``) does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torchstone.judging.evaluation import OPERATOR_ERRORS, Evaluator
from torchstone.judging.inputs import DrawnCall
from torchstone.judging.outcome import Mismatch

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def only_moves(evaluator: Evaluator, call: DrawnCall, native: Sequence[Any]) -> bool:
    """Whether torch's own results of a call are bits of its arguments, moved."""
    floating = [leaf for leaf in native if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and leaf.numel()]
    if not floating or evaluator.contract.mutated:
        return False
    try:
        moved = evaluator.on([_as_integers(tensor.view) for tensor in call.tensors])
    except OPERATOR_ERRORS:
        return False
    return all(_same_bits(one, other) for one, other in zip(native, moved, strict=True))


def lost_sign(native: Sequence[Any], got: Sequence[Any]) -> Mismatch | None:
    """A zero whose sign is not torch's."""
    for position, (one, other) in enumerate(zip(native, got, strict=True)):
        if isinstance(one, torch.Tensor) and one.is_floating_point() and one.shape == other.shape:
            lost = (one == 0) & (other == 0) & (torch.signbit(one) != torch.signbit(other))
            if bool(lost.any()):
                index = lost.nonzero()[0].tolist()
                text = f"the sign of {int(lost.sum())} zeros is lost, the first at {index}"
                return Mismatch("values", f"output {position}: {text}; this operator only moves values")
    return None


def _as_integers(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(_INTEGERS[tensor.element_size()]) if tensor.is_floating_point() else tensor


def _same_bits(native: Any, moved: Any) -> bool:
    if not isinstance(native, torch.Tensor) or not native.is_floating_point():
        return True
    return isinstance(moved, torch.Tensor) and torch.equal(_as_integers(native), moved)
