"""Decides whether torch's own answer to a call with planted values can be trusted; only then is another answer wrong.

A planted value (written by an input plan) may lie where a sum loses every digit, or where torch's answer depends on
its algorithm. An honest kernel could not match it. So a difference counts only if torch's own answer equals float64 on
the same values: numbers within a bound without allowance for torch, and the same infinities, NaN, integers and
booleans. This is checked only after a mismatch, which saves most calls their float64 evaluations.
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

_NATIVE_SHARE = 0.25
"""Share of the bound of planted calls, which is wide, that torch itself may use."""


def stands_by(expected: Expected) -> bool:
    """Whether torch's own answer to a call equals its float64 answer and the answer of its decomposition."""
    return _float64_agrees(expected) and _decomposition_agrees(expected)


def is_left_open(expected: Expected) -> bool:
    """Whether the call's plan accepts any result of this call."""
    plan = plan_of(expected.call)
    return plan is not None and plan.leaves_open(expected.call, expected.native)


def where_it_stands(
    expected: Expected, outputs: Sequence[Any], inputs_after: Sequence[torch.Tensor]
) -> tuple[list[Any], list[torch.Tensor]] | None:
    """A candidate's results, with torch's own in the elements where torch disagrees with itself. None: not possible.

    Only for pointwise operators, whose elements do not depend on one another: of gelu no digit is right far below zero,
    and every digit above.
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
    """Where torch's decomposition of the operator, if there is one, gives the same.

    Where its authors decided otherwise about NaN and infinities, torch promises nothing.
    """
    outputs, plan = _decomposed(expected), plan_of(expected.call)
    strictly = plan is not None and plan.policy.strict_non_finite
    return {
        place: _or_as_good(
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


def has_shapes_of_parts(expected: Expected) -> bool:
    """Whether torch's decomposition of the operator gives results of the same shapes, if there is one."""
    outputs = _decomposed(expected)
    return all(
        outputs[place.position].shape == native.shape
        for place, native in expected.native.items()
        if place.kind == "output" and place.position < len(outputs)
    )


def _decomposed(expected: Expected) -> list[Any]:
    """What torch's decomposition of the operator returns for a call; nothing if there is none."""
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
    except Exception:  # noqa: BLE001 - not made for these arguments: then it says nothing
        return []
    return [] if found is NotImplemented else operators.flatten_outputs(found)


def _within(got: torch.Tensor, want: ExpectedValues, *, strictly: bool) -> torch.Tensor:
    """Where ``got`` is within the bound or not finite like ``want``; ``strictly``: NaN is then not infinity."""
    same = elementwise_same(got, want.native)
    if want.bound is not None and is_continuous(want.native.dtype):
        same |= (got.to(want.centre.dtype) - want.centre).abs() <= want.bound
        same |= ~torch.isfinite(got) & ~torch.isfinite(want.native) & (not strictly)
    return same


def _float64_agrees(expected: Expected) -> bool:
    right = _right_by_float64(expected)
    return right is not None and all(bool(each.all()) for each in right.values())


def _right_by_float64(expected: Expected) -> Tensors | None:
    """Where torch's answer equals the float64 answer or is near it; None: there is no float64 answer."""
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
        place: _or_as_good(elementwise_same(got, native[place]), expected, place, got, first)
        for place, got in rounded.items()
    }
    unequal = [place for place, same in right.items() if is_continuous(native[place].dtype) and not bool(same.all())]
    best = {place: rounded[place] for place in unequal}
    for place, values in reference.bounded(call, best).items() if best else ():
        right[place] = right[place] | _near(native[place], values)
    return right


def _or_as_good(
    right: torch.Tensor, expected: Expected, place: ResultPosition, got: torch.Tensor, first: torch.Tensor | None
) -> torch.Tensor:
    """``right``; but everywhere, if the results are other indices of the same values."""
    as_good = not bool(right.all()) and ties.accepts(expected.call, place, got, expected.native[place], first)
    return torch.ones_like(right) if as_good else right


def as_far_as_promised(
    expected: Expected, outputs: Sequence[Any], inputs_after: Sequence[torch.Tensor]
) -> tuple[list[Any], list[torch.Tensor]]:
    """A candidate's results, with torch's own in the elements that are excused."""
    found, after = list(outputs), list(inputs_after)
    for place, native in expected.native.items():
        target = found if place.kind == "output" else after
        got = target[place.position]
        if is_continuous(native.dtype) and got.dtype == native.dtype and got.shape == native.shape:
            target[place.position] = torch.where(_excused(expected, place, native, got), native, got)
    return found, after


def _excused(expected: Expected, place: ResultPosition, native: torch.Tensor, got: torch.Tensor) -> torch.Tensor:
    """Elements that every plan excuses (not finite where torch's are not), and those that the call's plan excuses.

    A sum over infinities is infinite or NaN, as the algorithm has it. But an infinity of a pointwise operator is an
    answer: ``logaddexp`` of two infinities is not NaN.
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
    """``values`` are those of a result that is exact but for its last rounding."""
    same = elementwise_same(native, values.native)
    if values.bound is None or values.exact is None or values.exact.shape != native.shape:
        return torch.zeros_like(same)
    return same | ((native.to(values.exact.dtype) - values.exact).abs() <= _NATIVE_SHARE * values.bound)
