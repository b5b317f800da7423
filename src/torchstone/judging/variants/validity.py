"""Tests on the CPU whether torch accepts a variant, and compares the counts of finite results of two variants."""

from __future__ import annotations

import warnings

import msgspec
import torch

from torchstone import operators, schema
from torchstone.calls.draw_arguments import draw_call
from torchstone.calls.reference_calls import Evaluation, Evaluator, ReferenceFailure
from torchstone.calls.resizing import mapped
from torchstone.errors import UsageError

_CPU = torch.device("cpu")


def is_valid(case: schema.Case, seed: int) -> bool:
    """Whether torch accepts the case with drawn values, and also with the largest indices and all-True masks."""
    return _accepted_results(case, seed) is not None


def is_as_finite_as(case: schema.Case, other: schema.Case, seed: int) -> bool:
    """Whether both results have the same shapes and dtypes, and ``case`` has at least as many finite elements."""
    one, two = _accepted_results(case, seed), _accepted_results(other, seed)
    if one is None or two is None or one.tensors.keys() != two.tensors.keys():
        return False
    return all(_is_as_finite(tensor, two.tensors[place]) for place, tensor in one.tensors.items())


def _accepted_results(case: schema.Case, seed: int) -> Evaluation | None:
    """The results on the CPU; None if torch refuses the case, or refuses the largest indices and all-True masks."""
    if _would_end_the_process(case):
        return None
    found: Evaluation | None = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "degrees of freedom <= 0": the answer is NaN, and defined
        try:
            largest = _with_largest_values(case)
            for tried in (largest, case) if largest != case else (case,):
                found = Evaluator(tried, _CPU).native([draw_call(tried, seed, _CPU)])
        except (ReferenceFailure, UsageError):
            return None
    return found


def _would_end_the_process(case: schema.Case) -> bool:
    """Whether the case must not even be tried: torch's attention on the CPU divides by sizes (SIGFPE for 0)."""
    return operators.traits(case.operator).attends and any(0 in recipe.shape for recipe in schema.tensors_of(case))


def _is_as_finite(one: torch.Tensor, other: torch.Tensor) -> bool:
    alike = one.dtype == other.dtype and one.shape == other.shape
    return alike and int(torch.isfinite(one).sum()) >= int(torch.isfinite(other).sum())


def _with_largest_values(case: schema.Case) -> schema.Case:
    """The case with the largest index everywhere and masks all True (``masked_scatter`` then needs most values)."""

    def largest(argument: schema.Argument) -> schema.Argument:
        match argument:
            case schema.Tensor(fill=schema.Integers(high=high, low=low)) if low < high:
                return msgspec.structs.replace(argument, fill=schema.Integers(high - 1, high))
            case schema.Tensor(fill=schema.Booleans()):
                return msgspec.structs.replace(argument, fill=schema.Booleans(1.0))
            case schema.Sequence(items=items):
                return schema.Sequence(tuple(largest(item) for item in items))
            case _:
                return argument

    return mapped(case, largest)
