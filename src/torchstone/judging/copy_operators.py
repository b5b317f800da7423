"""Finds operators that only move values (copies, gathers), and zeros in their results that have lost their sign.

Numbers are compared by value, so -0.0 equals 0.0: after arithmetic, the sign of a zero depends on the formula. But a
copy that loses the sign is wrong, whether it is returned or written to an argument.

A test shows whether an operator only moves values. With the bit patterns of its inputs as integers, torch's operator
must give the same bits. An operator that compares or computes (``amax``, ``relu``) does not. For it,
zeros, infinities and NaN of either sign among the inputs show a difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import torch

from torchstone import operators, schema
from torchstone.calls.draw_arguments import DrawnCall
from torchstone.calls.reference_calls import Evaluator, ResultPosition, Tensors
from torchstone.calls.torch_errors import operator_errors
from torchstone.judging.comparison_result import Mismatch, Reason

_INTEGER_DTYPES = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_TEST_VALUES = (-0.0, 0.0, -float("nan"), 0.5, -1.5, float("inf"), -float("inf"))
"""Values whose bits, as integers, give different results if an operator compares or computes. As an integer, a NaN with
a sign bit is negative."""


def only_moves(evaluator: Evaluator, call: DrawnCall) -> bool | None:
    """Whether the operator only moves bits of its arguments in this call. None: no result is floating-point.

    Compares torch's results with those for the same bits as integers. The call's own values are tried first. Only if
    results are equal, test values replace some: outside an operator's domain they may end the process on a GPU.
    """
    storages = [tensor.storage for tensor in call.tensors]
    found = False
    for case in _cases_with_bits(evaluator):
        moves = _gives_same_bits(evaluator, case, storages)
        if moves is None:
            return None
        found = found or bool(
            moves and _gives_same_bits(evaluator, case, [_with_test_values(storage) for storage in storages])
        )
    return found


@dataclass(frozen=True, eq=False)
class LostSigns:
    """Zeros with another sign than torch's, in one result: a returned tensor, or an argument that was written to."""

    place: ResultPosition
    native: torch.Tensor
    got: torch.Tensor

    def count(self) -> torch.Tensor:
        """Number of such zeros, as a scalar tensor on the device."""
        return self._mask().sum().to(torch.float64)

    def mismatch(self) -> Mismatch:
        lost = self._mask()
        text = f"the sign of {int(lost.sum())} zeros is lost, the first at {lost.nonzero()[0].tolist()}"
        reason: Reason = "values" if self.place.kind == "output" else "mutation"
        message = f"{text}; this operator only moves values"
        wrong = schema.WrongResult(kind=self.place.kind, position=self.place.position, text=message)
        return Mismatch(reason, f"{self.place.kind} {self.place.position}: {message}", wrong=wrong)

    def _mask(self) -> torch.Tensor:
        one, other = (each.float() if each.element_size() == 1 else each for each in (self.native, self.got))
        return (one == 0) & (other == 0) & (torch.signbit(one) != torch.signbit(other))


def signs_to_keep(native: Tensors, outputs: Sequence[Any], inputs_after: Sequence[torch.Tensor]) -> list[LostSigns]:
    """Pairs of torch's and the kernel's results to search for lost signs, for an operator that only moves values."""
    of_kind = {"output": outputs, "argument": inputs_after}
    pairs = [(place, one, of_kind[place.kind][place.position]) for place, one in native.items()]
    return [
        LostSigns(place, one, other)
        for place, one, other in pairs
        if one.is_floating_point() and one.shape == other.shape
    ]


def _gives_same_bits(evaluator: Evaluator, case: schema.Case, storages: Sequence[torch.Tensor]) -> bool | None:
    """Whether torch's operator gives the same bits if it gets bits as integers. None: no result is floating-point."""
    try:
        moved = _results(evaluator, case, [_as_integers(storage.clone()) for storage in storages])
        native = _results(evaluator, evaluator.case, [storage.clone() for storage in storages])
    except operator_errors():
        return False
    pairs = [(one, other) for one, other in zip(native, moved, strict=True) if _has_bits(one)]
    return _same_bits(pairs) if pairs else None


def _results(evaluator: Evaluator, case: schema.Case, storages: Sequence[torch.Tensor]) -> list[Any]:
    """The returned leaves, and the storages that the operator writes to."""
    views = [operators.view_of(s, recipe) for s, recipe in zip(storages, evaluator.recipes, strict=True)]
    return [
        *evaluator.call_on_arithmetic_device(views, case),
        *(storages[position] for position in sorted(evaluator.contract.mutated)),
    ]


def _with_test_values(storage: torch.Tensor) -> torch.Tensor:
    """The storage with every second element replaced by a test value, if it is floating-point."""
    if not storage.is_floating_point():
        return storage
    values = torch.tensor(_TEST_VALUES, dtype=torch.float64).to(storage.dtype).to(storage.device)
    changed = storage.clone()
    places = torch.arange(0, storage.numel(), 2, device=storage.device)
    changed[places] = values[(places // 2) % len(_TEST_VALUES)]
    return changed


def _cases_with_bits(evaluator: Evaluator) -> list[schema.Case]:
    """The case; if it has float scalars (``masked_fill``), also the case with their bits as integers."""
    case = evaluator.case
    dtypes = [operators.torch_dtype(recipe.dtype) for recipe in evaluator.recipes]
    floating = [dtype for dtype in dtypes if dtype.is_floating_point]
    if not floating:
        return [case]
    args = tuple(_bits_of(argument, floating[0]) for argument in case.args)
    kwargs = {name: _bits_of(argument, floating[0]) for name, argument in case.kwargs.items()}
    other = msgspec.structs.replace(case, args=args, kwargs=kwargs)
    return [case] if other == case else [case, other]


def _bits_of(argument: schema.Argument, dtype: torch.dtype) -> schema.Argument:
    if isinstance(argument, schema.Scalar) and isinstance(argument.value, float):
        return schema.Scalar(int(_as_integers(torch.tensor(argument.value, dtype=torch.float64).to(dtype))))
    return argument


def _as_integers(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(_INTEGER_DTYPES[tensor.element_size()]) if tensor.is_floating_point() else tensor


def _has_bits(native: Any) -> bool:
    return isinstance(native, torch.Tensor) and native.is_floating_point() and native.numel() > 0


def _same_bits(pairs: Sequence[tuple[torch.Tensor, Any]]) -> bool:
    """Whether all pairs have the same bits. Waits for the device once."""
    bits = [(_as_integers(native), moved) for native, moved in pairs]
    if not all(isinstance(moved, torch.Tensor) and _have_same_form(native, moved) for native, moved in bits):
        return False
    return not bool(torch.stack([(native != moved).any() for native, moved in bits]).any())


def _have_same_form(one: torch.Tensor, other: torch.Tensor) -> bool:
    return (one.shape, one.dtype, one.device) == (other.shape, other.dtype, other.device)
