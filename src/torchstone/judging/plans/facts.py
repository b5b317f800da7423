"""Facts about a case that input plans ask for, each found once."""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING

import torch

from torchstone import operators, schema
from torchstone.judging.plans.forward_part import forward_case

if TYPE_CHECKING:
    from torchstone.judging.reference.expected import Expected

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
SIGNED = (torch.int8, torch.int16, torch.int32, torch.int64)
INTEGERS = (torch.uint8, *SIGNED)
_COMPLEX = (torch.complex64, torch.complex128)


class CaseFacts:
    """What is known of a case before anything is planted into it."""

    def __init__(self, case: schema.Case, *, tells_positions: bool, like: Expected | None = None) -> None:
        """``like``: an answered call of the case, or of the case that it is a variant of."""
        self.whole_case = case
        self.case = forward_case(case)
        """Of a gradient, the forward operator with its own arguments."""
        self.tells_positions = tells_positions
        """Whether results say where a value stands, so that equal values are ambiguous."""
        self.like = like

    @cached_property
    def gradient(self) -> bool:
        return schema.is_gradient(self.whole_case.operator)

    @cached_property
    def model(self) -> bool:
        """Whether a problem defines the operator."""
        return schema.is_model(self.case.operator)

    @cached_property
    def traits(self) -> operators.Traits:
        return operators.traits(self.case.operator)

    @cached_property
    def recipes(self) -> tuple[schema.Tensor, ...]:
        """Of the tensors, empty ones included."""
        return schema.tensors_of(self.case)

    @cached_property
    def filled(self) -> tuple[schema.Tensor, ...]:
        """Of the tensors that have elements."""
        return tuple(recipe for recipe in self.recipes if math.prod(recipe.shape))

    @cached_property
    def has_unbounded(self) -> bool:
        return any(map(is_unbounded, self.filled))

    @cached_property
    def has_complex(self) -> bool:
        return any(map(is_complex, self.filled))

    @cached_property
    def elements(self) -> int:
        """Of all storages, those of the cotangents included."""
        return sum(operators.storage_extent(recipe) for recipe in schema.tensors_of(self.whole_case))

    @cached_property
    def result_dtypes(self) -> list[torch.dtype | None]:
        """Of what a call returns; None for plain values."""
        return [] if self.like is None else [output.dtype for output in self.like.outputs]


def is_unbounded(recipe: schema.Tensor) -> bool:
    """Floating, of any value: a stated range is meant."""
    return isinstance(recipe.fill, schema.Normal) and operators.torch_dtype(recipe.dtype) in FLOATS


def is_bounded(recipe: schema.Tensor) -> bool:
    """Floating, with a stated range."""
    return isinstance(recipe.fill, schema.Uniform) and operators.torch_dtype(recipe.dtype) in FLOATS


def is_normal(recipe: schema.Tensor) -> bool:
    """Of any value, in any floating-point dtype: float8, too."""
    return isinstance(recipe.fill, schema.Normal) and operators.torch_dtype(recipe.dtype).is_floating_point


def is_complex(recipe: schema.Tensor) -> bool:
    """Complex, of any value."""
    return isinstance(recipe.fill, schema.Normal) and operators.torch_dtype(recipe.dtype) in _COMPLEX


def takes_numbers(recipe: schema.Tensor) -> bool:
    """Real numbers that are drawn one by one."""
    drawn = isinstance(recipe.fill, schema.Normal | schema.Uniform | schema.Integers)
    return drawn and operators.torch_dtype(recipe.dtype) in (*FLOATS, *SIGNED)


def may_be_index(recipe: schema.Tensor) -> bool:
    """Integers from 0 on, as indices are."""
    dtype = operators.torch_dtype(recipe.dtype)
    return isinstance(recipe.fill, schema.Integers) and recipe.fill.low == 0 and dtype in SIGNED
