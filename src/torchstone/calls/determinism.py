"""Whether the arguments of a call determine its results."""

from __future__ import annotations

from torchstone import operators
from torchstone.calls.evaluation import Evaluator


def draws_random_numbers(evaluator: Evaluator) -> bool:
    """Whether the operator may draw. Some do not with the arguments of a case: dropout that is not training."""
    return operators.traits(evaluator.case.operator).may_draw


def leaves_values_undefined(evaluator: Evaluator) -> bool:
    """Whether the operator only promises memory."""
    return operators.traits(evaluator.case.operator).leaves_undefined


FEW_RANDOM_ELEMENTS = 16
"""Below, only the support is judged. Elements that depend on one another count for fewer."""
