"""Planted calls, and whether torch stands by what it gives there: then, and only then, another answer is wrong.

A planted value may lie where an operator refuses it, where a sum loses every digit, or where torch's own answer is an
accident of its algorithm: an honest kernel could not meet it. So torch is asked. A planted call is made only if torch
takes it; negative indices, only where they give what the indices give that they stand for. On a device a value that an
operator does not take may end the process: then the host is asked first. Negative indices are planted there only where
they are part of what an operator is for: elsewhere torch takes them on the host and writes outside its buffers on CUDA
(``embedding_renorm_``).

And a candidate's answer is held against it only if torch's own is what float64 gives on the same values: the same
numbers within a bound that makes no allowance for torch, the same infinities and NaN, the same integers and
booleans. That is asked once an answer differs, which spares all others their float64 evaluations.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Sequence
from typing import Any

import torch

from torchstone import operators, schema
from torchstone.judging.decisions import ONCE, counted_from_the_start, counts_back, plans_for, plant
from torchstone.judging.evaluation import (
    OPERATOR_ERRORS,
    Evaluation,
    Evaluator,
    ReferenceFailure,
    is_continuous,
)
from torchstone.judging.idleness import draws_nothing
from torchstone.judging.inputs import DrawnCall, draw_calls, leaves_ties_open
from torchstone.judging.jitter import HIDDEN
from torchstone.judging.probing import exact_results
from torchstone.judging.reference import Expected, Reference, Values

_HOST = torch.device("cpu")
_FEW_ELEMENTS = 1 << 14
"""Of a call's tensors: up to here every plan is tried on a stated case."""
_MOST_ON_HOST = 1 << 18
_ALWAYS = ("hundreds", "moved", "negative", "marked")
"""Plans that larger ones meet, too: the path for large arguments is often one of its own."""
_OF_LARGE = 1
"""How many others they meet, drawn: their calls take long."""
_OF_VARIANT = (0, 1)
"""One plan for every second: a case has several variants."""
_MOST_AMONG_TIMED = 8
_ELEMENTS_AMONG_TIMED = 1 << 19
"""Of all calls that are planted in a block like timed ones."""
_NATIVE_SHARE = 0.25
"""Of the bound of planted calls, which is wide: what torch itself may take of it."""
_RISKY = ("nan", "infinities", "negative", "marked")
"""Plans whose values an operator may refuse."""


def planted_calls(usual: Expected, seed: int) -> list[Expected]:
    """Planted calls of a case that torch takes, perhaps none. ``usual`` is any other call of it."""
    reference = usual.batch.reference
    if reference.undefined:
        return []
    plans = plans_for(reference.case, once=_tells_places(usual))
    if not reference.runs_on_host and not counts_back(reference.case.operator):
        plans = [plan for plan in plans if not plan.startswith("negative")]
    plans = _chosen(reference.case, plans, random.Random(seed))
    if not plans or not draws_nothing(usual):
        return []
    drawn = draw_calls(reference.case, seed, len(plans), reference.device)
    planted = [plant(call, plan) for call, plan in zip(drawn, plans, strict=True)]
    return _answered(reference, [call for call in planted if _is_taken(reference, call)])


def plans_among_timed(usual: Expected, seed: int) -> list[str]:
    """Plans for blocks that are like timed ones: those whose values torch takes in any places.

    Nobody asks the host first there.
    """
    taken = [expected.call.planted for expected in planted_calls(usual, seed)]
    if usual.batch.reference.runs_on_host:
        return taken
    counting = counts_back(usual.call.case.operator)
    return [plan for plan in taken if plan.removesuffix(ONCE) not in _RISKY or (counting and "negative" in plan)]


def plant_some(calls: Sequence[DrawnCall], plans: Sequence[str]) -> list[DrawnCall]:
    """These calls with values planted into a few, which nobody can foresee: to compare one may take long."""
    chance, found = secrets.SystemRandom(), list(calls)
    few = max(1, min(_MOST_AMONG_TIMED, _ELEMENTS_AMONG_TIMED // max(1, _elements(calls[0].case))))
    for place in chance.sample(range(len(found)), min(few, len(found))):
        found[place] = plant(found[place], chance.choice(plans))
    return found


def stands_by(expected: Expected) -> bool:
    """Whether torch's own answer to a call is also what float64 gives, and what torch says it is made of."""
    return _float64_agrees(expected) and _decomposition_agrees(expected)


def _decomposition_agrees(expected: Expected) -> bool:
    """Whether torch's expression of the operator by others gives the same, where there is one.

    Its authors, too, had to decide what becomes of NaN and infinities: where they decided otherwise nothing is
    promised.
    """
    from torch._decomp import decomposition_table

    call = expected.call
    decomposed = decomposition_table.get(operators.resolve(call.case.operator))
    if decomposed is None or operators.contract_of(call.case).mutated:
        return True
    views = [operators.view_of(tensor.storage.clone(), tensor.recipe) for tensor in call.tensors]
    args, kwargs = operators.build_arguments(call.case, views, call.device)
    try:
        outputs = operators.flatten_outputs(decomposed(*args, **kwargs))
    except Exception:  # noqa: BLE001 - not made for these arguments: then it says nothing
        return True
    values = {place.position: found for place, found in expected.values().items() if place.kind == "output"}
    pairs = [(got, values[place]) for place, got in enumerate(outputs) if place in values]
    return all(got.shape != want.native.shape or _is_within(got, want) for got, want in pairs)


def _is_within(got: torch.Tensor, want: Values) -> bool:
    same = _elementwise_same(got, want.native)
    if want.bound is not None and want.native.is_floating_point():
        same |= (got.to(want.centre.dtype) - want.centre).abs() <= want.bound
        same |= ~torch.isfinite(got) & ~torch.isfinite(want.native)
    return bool(same.all())


def _float64_agrees(expected: Expected) -> bool:
    reference, call, native = expected.batch.reference, expected.call, expected.native
    try:
        exact = exact_results(reference.evaluator, call)
    except OPERATOR_ERRORS:
        return False
    unequal = [place for place, tensor in native.items() if not _rounds_to(exact.get(place), tensor)]
    if any(place not in exact or not is_continuous(native[place].dtype) for place in unequal):
        return False
    best = {place: exact[place].to(native[place].dtype) for place in unequal}
    return all(_is_near(native[place], values) for place, values in reference.bounded(call, best).items())


def as_far_as_promised(
    expected: Expected, outputs: Sequence[Any], inputs_after: Sequence[torch.Tensor]
) -> tuple[list[Any], list[torch.Tensor]]:
    """A candidate's results, with torch's own in the places where nobody promises which number it is that is none.

    A sum over infinities is infinite or NaN, as the algorithm has it; and where torch makes NaN of an infinity, another
    formula may know better.
    """
    found, after = list(outputs), list(inputs_after)
    for place, native in expected.native.items():
        target = found if place.kind == "output" else after
        got = target[place.position]
        if native.is_floating_point() and got.dtype == native.dtype and got.shape == native.shape:
            open_ = ~torch.isfinite(native) & ~torch.isfinite(got)
            if expected.call.planted.startswith("infinities"):
                open_ |= torch.isnan(native)
            target[place.position] = torch.where(open_, native, got)
    return found, after


def _answered(reference: Reference, calls: Sequence[DrawnCall]) -> list[Expected]:
    """What these must give; without those that torch refuses."""
    try:
        return reference.expect_many(calls)
    except ReferenceFailure:
        return [found for call in calls for found in _answered(reference, [call])] if len(calls) > 1 else []


def _chosen(case: schema.Case, plans: Sequence[str], random_: random.Random) -> list[str]:
    """All plans, for small cases that are stated."""
    plans = random_.sample(list(plans), len(plans))
    if HIDDEN in case.tags:
        return plans[: random_.choice(_OF_VARIANT)]
    if _elements(case) <= _FEW_ELEMENTS:
        return plans
    always = [plan for plan in plans if plan.removesuffix(ONCE) in _ALWAYS]
    return always + [plan for plan in plans if plan not in always][:_OF_LARGE]


def _elements(case: schema.Case) -> int:
    return sum(operators.storage_extent(recipe) for recipe in schema.tensors_of(case))


def _tells_places(usual: Expected) -> bool:
    """Whether results say where a value stands: which of equal ones, and of several NaN, is often left open.

    What a model only counts in its buffers says nothing of the kind.
    """
    model = schema.is_model(usual.call.case.operator)
    return leaves_ties_open(usual.call.case.operator) or any(
        not is_continuous(tensor.dtype) and tensor.dtype is not torch.bool
        for place, tensor in usual.native.items()
        if place.kind == "output" or not model
    )


def _is_taken(reference: Reference, call: DrawnCall) -> bool:
    """Whether the host takes values that an operator may refuse, and negative indices for what they stand for.

    Operators that count back promise it.
    """
    plan = call.planted.removesuffix(ONCE)
    negative = plan == "negative" and not counts_back(call.case.operator)
    if not negative and (reference.runs_on_host or plan not in _RISKY or plan == "negative"):
        return True
    if _elements(call.case) > _MOST_ON_HOST:
        return False
    evaluator = Evaluator(call.case, _HOST)
    try:
        found = evaluator.native_on(_stacked([tensor.storage for tensor in call.tensors]), 1)
        meant = evaluator.native_on(_stacked(counted_from_the_start(call)), 1) if negative else found
    except ReferenceFailure:
        return False
    return _same_results(found, meant)


def _stacked(storages: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [storage.to(_HOST, copy=True).unsqueeze(0) for storage in storages]


def _same_results(one: Evaluation | None, other: Evaluation | None) -> bool:
    """Whether what is returned is the same; the indices themselves are not, and may be among what is written to."""
    if one is None or other is None:
        return False
    places = [place for place in one.tensors if place.kind == "output"]
    return all(_same(one.tensors[place], other.tensors[place]) for place in places)


def _rounds_to(exact: torch.Tensor | None, native: torch.Tensor) -> bool:
    return exact is not None and exact.shape == native.shape and _same(exact.to(native.dtype), native)


def _is_near(native: torch.Tensor, values: Values) -> bool:
    """``values`` are those of a result that is exact but for its last rounding."""
    if values.bound is None or values.exact is None or values.exact.shape != native.shape:
        return False
    near = (native.to(values.exact.dtype) - values.exact).abs() <= _NATIVE_SHARE * values.bound
    return bool((near | _elementwise_same(native, values.native)).all())


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and (torch.equal(one, other) or bool(_elementwise_same(one, other).all()))


def _elementwise_same(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return (one == other) | ((one != one) & (other != other))
