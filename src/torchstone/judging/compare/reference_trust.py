"""Decides whether torch's own result of a call with planted values is reliable; only then may a difference be wrong.

A planted value (written by an input plan) may make a sum lose every digit, or make torch's result depend on its
algorithm. An honest kernel could not match such a result. So a difference counts only if torch's own result equals its
float64 result on the same values. Numbers must lie within a bound that makes no allowance for torch's own error.
Infinities, NaN, integers and booleans must be the same. This is checked only after a mismatch, so that most calls need
no float64 evaluation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torchstone import operators, schema
from torchstone.calls.reference_calls import ResultPosition, Tensors, is_continuous
from torchstone.calls.torch_errors import operator_errors
from torchstone.gradient_operators import Differentiated
from torchstone.judging.compare import ties
from torchstone.judging.plans import plan_of
from torchstone.judging.reference.expected import Expected, ExpectedValues
from torchstone.judging.reference.float64 import exact_results
from torchstone.judging.same_values import elementwise_same

_SHARE_FOR_REFERENCE = 0.25
"""Share of the bound of planted calls, which is wide, by which torch's own result may be off."""


def reference_is_consistent(expected: Expected) -> bool:
    """Whether torch's own result of a call equals its float64 result and the result of its decomposition."""
    return _float64_agrees(expected) and _decomposition_agrees(expected)


def plan_accepts_any_result(expected: Expected) -> bool:
    """Whether the call's plan accepts any result of this call."""
    plan = plan_of(expected.call)
    return plan is not None and plan.accepts_any_result(expected.call, expected.native)


def with_reference_where_inconsistent(
    expected: Expected, outputs: Sequence[Any], inputs_after: Sequence[torch.Tensor]
) -> tuple[list[Any], list[torch.Tensor]] | None:
    """A candidate's results, with torch's own in the elements where torch disagrees with itself. None: not possible.

    Only for pointwise operators, whose elements do not depend on one another. Example: gelu has no correct digit far
    below zero, and every digit is correct above.
    """
    if not operators.traits(schema.forward_operator(expected.call.case.operator)).pointwise:
        return None
    right = _right_by_float64(expected)
    if right is None:
        return None
    for place, same in _right_by_decomposition(expected).items():
        right[place] = right[place] & same
    found, after = list(outputs), list(inputs_after)
    for place, native in expected.native.items():
        target = found if place.kind == "output" else after
        got = target[place.position]
        if got.shape != native.shape or got.dtype != native.dtype:
            return None
        target[place.position] = torch.where(right[place], got, native)
    return found, after


def _decomposition_agrees(expected: Expected) -> bool:
    return all(bool(right.all()) for right in _right_by_decomposition(expected).values())


def _right_by_decomposition(expected: Expected) -> Tensors:
    """For each output, where torch's decomposition of the operator gives the same. Empty if there is none.

    Where the decomposition treats NaN and infinities otherwise than the operator, torch promises nothing.
    """
    outputs, plan = _decomposed(expected), plan_of(expected.call)
    strictly = plan is not None and plan.policy.strict_non_finite
    return {
        place: _or_all_if_tied(
            _within(outputs[place.position], want, strictly=strictly),
            expected,
            place,
            outputs[place.position],
            outputs[0],
        )
        for place, want in (expected.values().items() if outputs else ())
        if place.kind == "output" and place.position < len(outputs)
        if outputs[place.position].shape == want.native.shape
    }


def decomposition_has_same_shapes(expected: Expected) -> bool:
    """Whether torch's decomposition of the operator gives results of the same shapes; True if there is none."""
    outputs = _decomposed(expected)
    return all(
        outputs[place.position].shape == native.shape
        for place, native in expected.native.items()
        if place.kind == "output" and place.position < len(outputs)
    )


def _decomposed(expected: Expected) -> list[Any]:
    """What torch's decomposition of the operator returns for a call; empty if there is none, or if it fails."""
    from torch._decomp import decomposition_table

    call = expected.call
    decomposed = decomposition_table.get(operators.resolve(schema.forward_operator(call.case.operator)))
    if decomposed is not None and schema.is_gradient(call.case.operator):
        decomposed = Differentiated(decomposed)
    if decomposed is None or operators.contract_of(call.case).mutated:
        return []
    views = [operators.view_of(tensor.storage.clone(), tensor.recipe) for tensor in call.tensors]
    args, kwargs = operators.build_arguments(call.case, views, call.device)
    try:
        found = decomposed(*args, **kwargs)
    except Exception:  # noqa: BLE001 - it does not support these arguments
        return []
    return [] if found is NotImplemented else operators.flatten_outputs(found)


def _within(got: torch.Tensor, want: ExpectedValues, *, strictly: bool) -> torch.Tensor:
    """Where ``got`` is within the bound, or not finite like ``want``. ``strictly``: NaN and infinity are different."""
    same = elementwise_same(got, want.native)
    if want.bound is not None and is_continuous(want.native.dtype):
        same |= (got.to(want.centre.dtype) - want.centre).abs() <= want.bound
        same |= ~torch.isfinite(got) & ~torch.isfinite(want.native) & (not strictly)
    return same


def _float64_agrees(expected: Expected) -> bool:
    right = _right_by_float64(expected)
    return right is not None and all(bool(each.all()) for each in right.values())


def _right_by_float64(expected: Expected) -> Tensors | None:
    """For each result, where torch's equals its float64 result or is near it; None: there is no float64 result."""
    reference, call, native = expected.batch.reference, expected.call, expected.native
    try:
        exact = exact_results(reference.evaluator, call)
    except operator_errors():
        return None
    if any(place not in exact or exact[place].shape != tensor.shape for place, tensor in native.items()):
        return None
    rounded = {place: exact[place].to(tensor.dtype) for place, tensor in native.items()}
    first = rounded.get(ResultPosition("output", 0))
    right = {
        place: _or_all_if_tied(elementwise_same(got, native[place]), expected, place, got, first)
        for place, got in rounded.items()
    }
    unequal = [place for place, same in right.items() if is_continuous(native[place].dtype) and not bool(same.all())]
    best = {place: rounded[place] for place in unequal}
    for place, values in reference.bounded(call, best).items() if best else ():
        right[place] = right[place] | _near(native[place], values)
    return right


def _or_all_if_tied(
    right: torch.Tensor, expected: Expected, place: ResultPosition, got: torch.Tensor, first: torch.Tensor | None
) -> torch.Tensor:
    """``right``, or True everywhere if the result is another right choice among equal values."""
    as_good = not bool(right.all()) and ties.accepts(expected.call, place, got, expected.native[place], first)
    return torch.ones_like(right) if as_good else right


def with_reference_where_excused(
    expected: Expected, outputs: Sequence[Any], inputs_after: Sequence[torch.Tensor]
) -> tuple[list[Any], list[torch.Tensor]]:
    """A candidate's results, with torch's own in the elements that are excused, so that they count as equal."""
    found, after = list(outputs), list(inputs_after)
    for place, native in expected.native.items():
        target = found if place.kind == "output" else after
        got = target[place.position]
        if is_continuous(native.dtype) and got.dtype == native.dtype and got.shape == native.shape:
            target[place.position] = torch.where(_excused(expected, place, native, got), native, got)
    return found, after


def _excused(expected: Expected, place: ResultPosition, native: torch.Tensor, got: torch.Tensor) -> torch.Tensor:
    """Elements that every plan excuses (not finite where torch's are not), and those that the call's plan excuses.

    A sum over infinities is infinite or NaN, depending on the algorithm. An infinite result of a pointwise operator is
    not excused: ``logaddexp`` of two infinities is not NaN.
    """
    call, plan = expected.call, plan_of(expected.call)
    pointwise = operators.traits(call.case.operator).pointwise
    excused = (torch.isnan(native) if pointwise else ~torch.isfinite(native)) & ~torch.isfinite(got)
    return excused if plan is None else excused | plan.excuses(call, place, native, got)


def excuses_numbers(expected: Expected) -> bool:
    """Whether the call's plan may excuse a finite result where torch's own is finite."""
    plan = plan_of(expected.call)
    return plan is not None and plan.excuses_numbers(expected.call)


def _near(native: torch.Tensor, values: ExpectedValues) -> torch.Tensor:
    """Where torch's own result equals the float64 result, or lies within a share of its bound.

    ``values``: the bounds of the float64 result, rounded to the dtype.
    """
    same = elementwise_same(native, values.native)
    if values.bound is None or values.exact is None or values.exact.shape != native.shape:
        return torch.zeros_like(same)
    return same | ((native.to(values.exact.dtype) - values.exact).abs() <= _SHARE_FOR_REFERENCE * values.bound)
