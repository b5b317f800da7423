"""Tells whether an operator may draw random numbers, or leaves values undefined (``empty``)."""

from __future__ import annotations

from torchstone import operators
from torchstone.calls.reference_calls import Evaluator


def draws_random_numbers(evaluator: Evaluator) -> bool:
    """Whether the operator may draw random numbers. With some arguments it draws none: dropout outside of training."""
    return operators.traits(evaluator.case.operator).may_draw


def leaves_values_undefined(evaluator: Evaluator) -> bool:
    """Whether the operator returns memory with undefined values (``empty``)."""
    return operators.traits(evaluator.case.operator).leaves_undefined


FEW_RANDOM_ELEMENTS = 16
"""Least elements of random results that are judged by distribution. Smaller ones are judged only by which values may
occur. Dependent elements count for fewer."""
