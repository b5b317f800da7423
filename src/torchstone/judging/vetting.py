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
from dataclasses import replace
from typing import Any

import torch

from torchstone import operators, schema
from torchstone.gradients import Differentiated
from torchstone.judging import ties
from torchstone.judging.alike import ALIKE, NEARLY, tells_one_truth
from torchstone.judging.beyond import is_beyond
from torchstone.judging.counting import LOUD, UNUSED
from torchstone.judging.decisions import (
    CARRIED,
    counted_from_the_start,
    counts_back,
    decomposes,
    leaves_rounding,
    may_carry,
    plans_for,
    plant,
)
from torchstone.judging.evaluation import (
    OPERATOR_ERRORS,
    Evaluation,
    Evaluator,
    Place,
    ReferenceFailure,
    Tensors,
    is_continuous,
)
from torchstone.judging.first_of_equals import says_which_of_equals
from torchstone.judging.idleness import draws_nothing
from torchstone.judging.inputs import DrawnCall, draw_calls, leaves_ties_open
from torchstone.judging.jitter import HIDDEN
from torchstone.judging.lone import LONE, may_be_lone
from torchstone.judging.lots import ONCE
from torchstone.judging.meeting import MEETING
from torchstone.judging.narrow import NARROW
from torchstone.judging.nonfinite_inputs import NON_FINITE, left_open, may_be_non_finite
from torchstone.judging.probing import exact_results
from torchstone.judging.reference import Expected, Reference, Values
from torchstone.judging.repeated import INFINITE, REPEATED, may_repeat
from torchstone.judging.rows import has_classes
from torchstone.judging.scaled import SCALED, ScaledCall, may_be_scaled
from torchstone.judging.sided import ABOVE, BELOW
from torchstone.judging.whole import NONE, WHOLE
from torchstone.judging.wide import has_indices

_HOST = torch.device("cpu")
_FEW_ELEMENTS = 1 << 14
"""Of a call's tensors: up to here several plans are tried on a stated case."""
_MOST_ON_HOST = 1 << 18
_OF_ANY_SIZE = ("beyond", "masked", "padded", "missing", NARROW, UNUSED, LOUD, BELOW, ABOVE, WHOLE, NONE, INFINITE)
"""Plans that every stated case meets to which they apply, besides the others: few do, and variants seldom meet them."""
_ALWAYS = ("hundreds", "placed", "moved", "negative", "marked", *_OF_ANY_SIZE)
"""Plans that larger ones meet, too: the path for large arguments is often one of its own."""
_BESIDES = (REPEATED, MEETING)
"""Plans that every call of a case meets that they are for, beside the others: what comes twice is what it is about."""
_OF_MODEL = ("hundreds", "moved", "lowered", "flat")
"""A problem is one case, often large, without variants."""
_OF_SMALL = 6
_OF_LARGE = ((1 << 18, 3), (1 << 20, 2))
"""How many others they meet, in turn, up to so many elements: their calls take long."""
_OF_LARGEST = 1
_OF_LARGE_VARIANT = 1
"""Besides ``hundreds`` and ``placed``: of a large case all variants are large, and its paths are their own."""
_OF_VARIANT = (0, 1)
"""One plan for every second: a case has several variants."""
_OF_SEVERAL_BLOCKS = 1 << 10
"""Variants from here on get ``hundreds``: of odd sizes, their last elements are what whole blocks leave out."""
_NO_NUMBERS = ("nan", "infinities")
"""Of operators that are about these, every variant: what else than its numbers should show what they do?"""
_REMEMBERED_TURNS = 256
"""More than a job asks for."""
_MOST_AMONG_TIMED = 8
_ELEMENTS_AMONG_TIMED = 1 << 19
"""Of all calls that are planted in a block like timed ones."""
_NATIVE_SHARE = 0.25
"""Of the bound of planted calls, which is wide: what torch itself may take of it."""
_RISKY = ("nan", "infinities", "negative", "marked", "ends", "beyond")
"""Plans whose values an operator may refuse."""
_NEARLY_INFINITE = 2.0**-10
"""Of the largest number: in another order a product on the way there may already be infinite."""
_HELD_WHERE_FINITE = ("masked", "padded", "missing", "ends", "beyond")


def planted_calls(usual: Expected, seed: int, *, non_finite: bool = False) -> list[Expected]:
    """Planted calls of a case that torch takes, perhaps none. ``usual`` is any other call of it.

    ``non_finite``: and one with NaN and infinities, if the operator is pointwise.
    """
    planting = Planting(usual.batch.reference, usual, seed, non_finite=non_finite)
    usual.batch.reference.foresee(planting.calls)
    return planting.answered()


class Planting:
    """Planted calls of a case, drawn but not answered yet."""

    def __init__(self, reference: Reference, like: Expected, seed: int, *, non_finite: bool = False) -> None:
        """``like`` is a call of the case or of the one that it is a variant of: it tells what kinds of results it has.

        Where results are drawn it must be one of the case itself. ``non_finite``: as :func:`planted_calls`.
        """
        self._reference = reference
        plans = _plans(reference, like, seed)
        plans += [NON_FINITE] if non_finite and _may_be_non_finite(reference, like) else []
        lone = may_be_lone(reference.case)
        if (plans or lone) and reference.lottery is not None and not draws_nothing(like):
            plans = [LONE] if lone else []
        self._scaled = ScaledCall(reference, seed) if SCALED in plans else None
        plans = [plan for plan in plans if plan != SCALED]
        drawn = draw_calls(reference.case, seed, len(plans), reference.device) if plans else []
        planted = [plant(call, plan) for call, plan in zip(drawn, plans, strict=True)]
        self._planted = [call for call in planted if _is_taken(reference, call)]

    @property
    def calls(self) -> list[DrawnCall]:
        """What torch will be asked."""
        return [*self._planted, *([] if self._scaled is None else self._scaled.calls)]

    def answered(self) -> list[Expected]:
        """Those that torch takes."""
        scaled = [] if self._scaled is None else self._scaled.answered()
        return _answered(self._reference, self._planted) + scaled


def _plans(reference: Reference, like: Expected, seed: int) -> list[str]:
    if reference.undefined:
        return []
    plans = plans_for(reference.case, once=_tells_places(like))
    if may_carry(reference.case) and _carries(like) and not any(plan.startswith(_NO_NUMBERS) for plan in plans):
        plans.append(CARRIED + (ONCE if _tells_places(like) else ""))
    model = schema.is_model(reference.case.operator)
    if model and _tells_places(like) and may_repeat(reference.case) and says_which_of_equals(like.call):
        plans.append(REPEATED)
    if not reference.runs_on_host:
        plans = [plan for plan in plans if _survives(plan, reference.case.operator)]
    if _may_be_scaled(reference):
        plans.append(SCALED)
    all_meet = (*_BESIDES, ALIKE, NEARLY) if tells_one_truth(reference.case) else _BESIDES
    besides = [plan for plan in plans if plan in all_meet]
    return besides + _chosen(reference.case, [plan for plan in plans if plan not in besides], seed)


def _may_be_non_finite(reference: Reference, like: Expected) -> bool:
    kinds = [output.dtype for output in like.outputs]
    return not reference.undefined and may_be_non_finite(reference.case, kinds)


def _carries(like: Expected) -> bool:
    """Whether the operator moves bits and nothing else, or compares elements: who multiplies there to choose is wrong
    about infinities. What else becomes of these is a matter of formulas.
    """
    pointwise = torch.Tag.pointwise in operators.resolve(like.call.case.operator).tags
    compares = pointwise and all(output.dtype is torch.bool for output in like.outputs)
    return compares or like.batch.reference.only_moves(like.call)


def _survives(plan: str, operator: str) -> bool:
    """Whether a process on a device does: a value that is no index ends it."""
    if plan.startswith("negative"):
        return counts_back(operator)
    if is_beyond(plan):
        return torch.Tag.pointwise in operators.resolve(operator).tags
    return not plan.startswith("wide") or not has_indices(operator)


def _may_be_scaled(reference: Reference) -> bool:
    recipes = [recipe for recipe in schema.tensors_of(reference.case) if may_be_scaled(recipe)]
    return bool(recipes) and not schema.is_model(reference.case.operator) and not decomposes(reference.case.operator)


def plans_among_timed(usual: Expected, seed: int) -> list[str]:
    """Plans for blocks that are like timed ones: those whose values torch takes in any places.

    Nobody asks the host first there, nor drops a call that torch refuses.
    """
    operator = usual.call.case.operator
    taken = [expected.call.planted for expected in planted_calls(usual, seed) if expected.call.planted]
    taken = [plan for plan in taken if plan != LONE and (not is_beyond(plan) or _survives(plan, operator))]
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


def is_left_open(expected: Expected) -> bool:
    """Whether nothing is held against anyone: torch's answer is not finite, and its parts depend on one another."""
    call = expected.call
    alone = torch.Tag.pointwise in operators.resolve(call.case.operator).tags
    outside = is_beyond(call.planted) or (call.planted.startswith("masked") and has_classes(call.case))
    return outside and not alone and not all(bool(torch.isfinite(each).all()) for each in expected.native.values())


def where_it_stands(
    expected: Expected, outputs: Sequence[Any], inputs_after: Sequence[torch.Tensor]
) -> tuple[list[Any], list[torch.Tensor]] | None:
    """A candidate's results, with torch's own in the elements where it does not stand by them. None: all of them.

    Of pointwise operators, whose elements have nothing to do with one another: of gelu no digit is right far below
    zero, and every digit above.
    """
    operator = schema.forward_operator(expected.call.case.operator)
    if torch.Tag.pointwise not in operators.resolve(operator).tags:
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
    """Where torch's expression of the operator by others gives the same, if there is one.

    Its authors, too, had to decide what becomes of NaN and infinities: where they decided otherwise nothing is
    promised.
    """
    outputs = _decomposed(expected)
    return {
        place: _or_as_good(
            _within(outputs[place.position], want, strictly=expected.call.planted == NON_FINITE),
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
    """Whether torch's expression of the operator by others gives results of the same shapes, if there is one."""
    outputs = _decomposed(expected)
    return all(
        outputs[place.position].shape == native.shape
        for place, native in expected.native.items()
        if place.kind == "output" and place.position < len(outputs)
    )


def _decomposed(expected: Expected) -> list[Any]:
    """What torch's expression of the operator by others returns for a call; nothing if there is none."""
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


def _within(got: torch.Tensor, want: Values, *, strictly: bool) -> torch.Tensor:
    """``strictly``: NaN and infinities are what is asked about, so one does not stand for the other."""
    same = _elementwise_same(got, want.native)
    if want.bound is not None and is_continuous(want.native.dtype):
        same |= (got.to(want.centre.dtype) - want.centre).abs() <= want.bound
        same |= ~torch.isfinite(got) & ~torch.isfinite(want.native) & (not strictly)
    return same


def _float64_agrees(expected: Expected) -> bool:
    right = _right_by_float64(expected)
    return right is not None and all(bool(each.all()) for each in right.values())


def _right_by_float64(expected: Expected) -> Tensors | None:
    """Where torch's answer is what float64 gives, or near it; None: that cannot be said."""
    reference, call, native = expected.batch.reference, expected.call, expected.native
    try:
        exact = exact_results(reference.evaluator, call)
    except OPERATOR_ERRORS:
        return None
    if any(place not in exact or exact[place].shape != tensor.shape for place, tensor in native.items()):
        return None
    rounded = {place: exact[place].to(tensor.dtype) for place, tensor in native.items()}
    first = rounded.get(Place("output", 0))
    right = {
        place: _or_as_good(_elementwise_same(got, native[place]), expected, place, got, first)
        for place, got in rounded.items()
    }
    unequal = [place for place, same in right.items() if is_continuous(native[place].dtype) and not bool(same.all())]
    best = {place: rounded[place] for place in unequal}
    for place, values in reference.bounded(call, best).items() if best else ():
        right[place] = right[place] | _near(native[place], values)
    return right


def _or_as_good(
    right: torch.Tensor, expected: Expected, place: Place, got: torch.Tensor, first: torch.Tensor | None
) -> torch.Tensor:
    """Everywhere, if these are other indices of the same values."""
    as_good = not bool(right.all()) and ties.accepts(expected.call, place, got, expected.native[place], first)
    return torch.ones_like(right) if as_good else right


def as_far_as_promised(
    expected: Expected, outputs: Sequence[Any], inputs_after: Sequence[torch.Tensor]
) -> tuple[list[Any], list[torch.Tensor]]:
    """A candidate's results, with torch's own in the places where nobody promises which number it is, or is none.

    A sum over infinities is infinite or NaN, as the algorithm has it; and where torch makes NaN of an infinity, another
    formula may know better. But an infinity of a pointwise operator is an answer: ``logaddexp`` of two is no NaN.
    """
    found, after = list(outputs), list(inputs_after)
    alone = torch.Tag.pointwise in operators.resolve(expected.call.case.operator).tags
    for place, native in expected.native.items():
        target = found if place.kind == "output" else after
        got = target[place.position]
        if is_continuous(native.dtype) and got.dtype == native.dtype and got.shape == native.shape:
            open_ = (torch.isnan(native) if alone else ~torch.isfinite(native)) & ~torch.isfinite(got)
            if expected.call.planted.startswith("infinities"):
                open_ |= torch.isnan(native)
            elif expected.call.planted == NON_FINITE:
                open_ |= left_open(expected.call, place, native)
            elif expected.call.planted.startswith("magnitudes") and native.dtype is not torch.float16:
                open_ |= (native.abs() > torch.finfo(native.dtype).max * _NEARLY_INFINITE) & ~torch.isfinite(got)
            elif alone and is_beyond(expected.call.planted):
                open_ |= ~torch.isfinite(native) & ~torch.isfinite(got)
            elif expected.call.planted.startswith(_HELD_WHERE_FINITE):
                open_ |= ~torch.isfinite(native)
            elif leaves_rounding(expected.call):
                open_ |= torch.isfinite(got)
            target[place.position] = torch.where(open_, native, got)
    return found, after


def _answered(reference: Reference, calls: Sequence[DrawnCall]) -> list[Expected]:
    """What these must give; without those that torch refuses.

    What usual values allow is too much where all of them are small.
    """
    try:
        found = reference.expect_many(calls)
        return [replace(each, with_bounds=each.call.planted == NARROW) for each in found]
    except ReferenceFailure:
        return [found for call in calls for found in _answered(reference, [call])] if len(calls) > 1 else []


def _chosen(case: schema.Case, plans: Sequence[str], seed: int) -> list[str]:
    """All plans for stated cases that are small and have no variants; else some, each in its turn."""
    random_ = random.Random(seed)
    if HIDDEN in case.tags and _elements(case) >= _OF_SEVERAL_BLOCKS:
        always = [plan for plan in plans if plan.removesuffix(ONCE) in (*_ALWAYS[:2], *_NO_NUMBERS)]
        others = [plan for plan in plans if plan not in always]
        return always + _turns.take(case.operator, others, _OF_LARGE_VARIANT, seed)
    if HIDDEN in case.tags:
        always = [plan for plan in plans if plan.removesuffix(ONCE) in _NO_NUMBERS]
        others = [plan for plan in plans if plan not in always]
        return always + _turns.take(case.operator, others, random_.choice(_OF_VARIANT), seed)
    small = _elements(case) <= _FEW_ELEMENTS
    if small and not case.jitter:
        return random_.sample(list(plans), len(plans))
    besides = [plan for plan in plans if plan.removesuffix(ONCE) in _OF_ANY_SIZE]
    first = _OF_MODEL if schema.is_model(case.operator) else _ALWAYS[:2] if small else _ALWAYS
    always = [plan for plan in plans if plan.removesuffix(ONCE) in first and plan not in besides]
    others = [plan for plan in plans if plan not in always and plan not in besides]
    of_large = next((count for most, count in _OF_LARGE if _elements(case) <= most), _OF_LARGEST)
    count = _OF_SMALL - len(always) if small else of_large
    return always + besides + _turns.take(case.operator, others, count, seed, afresh=case.jitter)


class _Turns:
    """Whose turn it is, per operator: no plan comes twice before all have come that apply.

    A case and its variants so meet every plan with few calls, in an order that nobody can foresee: a case that has
    variants begins afresh, or some plans would come to it twice that were left over from another. Who asks again with
    the same seed is given the same: a candidate that dies of a plan must not get another for it. What is given to one
    case is nothing to another with that seed, to which other plans may apply.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, list[str]] = {}
        self._given: dict[tuple[str, int, tuple[str, ...], int], list[str]] = {}

    def take(self, operator: str, plans: Sequence[str], count: int, seed: int, *, afresh: bool = False) -> list[str]:
        key = operator, seed, tuple(plans), count
        if key not in self._given:
            if len(self._given) >= _REMEMBERED_TURNS:
                self._given.pop(next(iter(self._given)))
            if afresh:
                self._waiting.pop(operator, None)
            self._given[key] = self._next(operator, plans, count, random.Random(seed))
        return self._given[key]

    def _next(self, operator: str, plans: Sequence[str], count: int, random_: random.Random) -> list[str]:
        waiting = self._waiting.setdefault(operator, [])
        found: list[str] = []
        while len(found) < min(count, len(plans)):
            if not any(plan in waiting for plan in plans):
                waiting += random_.sample(list(plans), len(plans))
            plan = next(plan for plan in waiting if plan in plans)
            waiting.remove(plan)
            found += [plan] if plan not in found else []
        return found


_turns = _Turns()


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


def _near(native: torch.Tensor, values: Values) -> torch.Tensor:
    """``values`` are those of a result that is exact but for its last rounding."""
    same = _elementwise_same(native, values.native)
    if values.bound is None or values.exact is None or values.exact.shape != native.shape:
        return torch.zeros_like(same)
    return same | ((native.to(values.exact.dtype) - values.exact).abs() <= _NATIVE_SHARE * values.bound)


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and (torch.equal(one, other) or bool(_elementwise_same(one, other).all()))


def _elementwise_same(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return (one == other) | ((one != one) & (other != other))
