"""Which planted calls are used: torch is asked, and must agree with itself.

A planted value may lie where an operator refuses it, where a sum loses every digit, or where torch's own answer is an
accident of its algorithm: an honest kernel could not meet it. So a planted call counts only if torch takes it, and if its
own result is what float64 gives on the same values: the same numbers within a bound that makes no allowance for torch,
the same infinities and NaN, the same integers and booleans. Negative indices count only where they give what the indices
give that they stand for. On a device a value that an operator does not take may end the process: then the host is asked
first.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import torch

from torchstone import operators, schema
from torchstone.judging.decisions import ONCE, counted_from_the_start, plans_for, plant
from torchstone.judging.evaluation import (
    OPERATOR_ERRORS,
    Evaluation,
    Evaluator,
    ReferenceFailure,
    Tensors,
    is_continuous,
)
from torchstone.judging.inputs import DrawnCall, draw_calls, leaves_ties_open
from torchstone.judging.jitter import HIDDEN
from torchstone.judging.probing import exact_results
from torchstone.judging.reference import Expected, Reference, Values

_HOST = torch.device("cpu")
_FEW_ELEMENTS = 1 << 16
"""Of a call's tensors: up to here every plan is tried on a stated case."""
_MANY_ELEMENTS = 1 << 20
"""Above, only if there are no hidden variants, which are smaller and are planted, too."""
_MOST_ON_HOST = 1 << 18
_OF_LARGE = 2
_OF_VARIANT = 2
"""Plans that are tried."""
_RISKY = ("nan", "infinities", "negative", "marked")
"""Plans whose values an operator may refuse."""


def planted_calls(usual: Expected, seed: int) -> list[Expected]:
    """Planted calls of a case on which torch agrees with itself, perhaps none. ``usual`` is any other call of it."""
    reference = usual.batch.reference
    if not reference.screens or reference.lottery is not None:
        return []
    plans = _chosen(reference.case, plans_for(reference.case, once=_tells_places(usual)), random.Random(seed))
    calls = draw_calls(reference.case, seed, len(plans), reference.device) if plans else []
    found = [vetted(reference, plant(call, plan)) for call, plan in zip(calls, plans, strict=True)]
    return [expected for expected in found if expected is not None]


def vetted(reference: Reference, call: DrawnCall) -> Expected | None:
    """What a planted call must give; None: it is not to be used."""
    try:
        if not _is_taken(reference, call):
            return None
        (expected,) = reference.expect_many([call], with_bounds=True)
        return _if_consistent(expected, exact_results(reference.evaluator, call))
    except (ReferenceFailure, *OPERATOR_ERRORS):
        return None


def _chosen(case: schema.Case, plans: Sequence[str], random_: random.Random) -> list[str]:
    """All plans, for small cases that are stated."""
    elements = _elements(case)
    if HIDDEN in case.tags:
        count = _OF_VARIANT
    elif elements <= _FEW_ELEMENTS:
        count = len(plans)
    else:
        count = _OF_LARGE if elements <= _MANY_ELEMENTS else int(not case.jitter)
    return random_.sample(list(plans), min(count, len(plans)))


def _elements(case: schema.Case) -> int:
    return sum(operators.storage_extent(recipe) for recipe in schema.tensors_of(case))


def _tells_places(usual: Expected) -> bool:
    """Whether results say where a value stands: which of equal ones, and of several NaN, is often left open."""
    return leaves_ties_open(usual.call.case.operator) or any(
        not is_continuous(tensor.dtype) and tensor.dtype is not torch.bool for tensor in usual.native.values()
    )


def _is_taken(reference: Reference, call: DrawnCall) -> bool:
    """Whether the host takes values that an operator may refuse, and negative indices for what they stand for."""
    plan = call.planted.removesuffix(ONCE)
    negative = plan == "negative"
    if not negative and (reference.runs_on_host or plan not in _RISKY):
        return True
    if _elements(call.case) > _MOST_ON_HOST:
        return False
    evaluator = Evaluator(call.case, _HOST)
    found = evaluator.native_on(_stacked([tensor.storage for tensor in call.tensors]), 1)
    if not negative:
        return found is not None
    return _same_results(found, evaluator.native_on(_stacked(counted_from_the_start(call)), 1))


def _stacked(storages: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [storage.to(_HOST, copy=True).unsqueeze(0) for storage in storages]


def _same_results(one: Evaluation | None, other: Evaluation | None) -> bool:
    """Whether what is returned is the same; the indices themselves are not, and may be among what is written to."""
    if one is None or other is None:
        return False
    places = [place for place in one.tensors if place.kind == "output"]
    return all(_same(one.tensors[place], other.tensors[place]) for place in places)


def _if_consistent(expected: Expected, exact: Tensors) -> Expected | None:
    """With its values, where it took working them out to see that torch's own are right."""
    native = expected.native
    unequal = [place for place, tensor in native.items() if not _rounds_to(exact.get(place), tensor)]
    if not unequal:
        return expected
    if any(not is_continuous(native[place].dtype) or place not in exact for place in unequal):
        return None
    values = expected.values()
    return replace(expected, known=values) if all(_meets_its_bound(values[place]) for place in unequal) else None


def _rounds_to(exact: torch.Tensor | None, native: torch.Tensor) -> bool:
    return exact is not None and exact.shape == native.shape and _same(exact.to(native.dtype), native)


def _meets_its_bound(values: Values) -> bool:
    """Whether torch's own result would be accepted if it were a candidate's."""
    if values.bound is None or values.exact is None or values.exact.shape != values.native.shape:
        return False
    near = (values.native.to(values.exact.dtype) - values.exact).abs() <= values.bound
    rounded = values.exact.to(values.native.dtype)
    return bool((near | _elementwise_same(values.native, rounded)).all())


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and (torch.equal(one, other) or bool(_elementwise_same(one, other).all()))


def _elementwise_same(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return (one == other) | ((one != one) & (other != other))
