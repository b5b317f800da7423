"""Facts about a case that decide which input plans (special values written into test inputs) apply to it."""

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
    """Facts about one case, each computed once, before any plan writes into its calls."""

    def __init__(self, case: schema.Case, *, tells_positions: bool, like: Expected | None = None) -> None:
        """``like``: a call with its expected result, of this case or of the stated case that it is a variant of."""
        self.whole_case = case
        self.case = forward_case(case)
        """The case itself; for a gradient, the forward operator with its own arguments."""
        self.tells_positions = tells_positions
        """Whether results are positions (argmax, sort), which are ambiguous for equal values."""
        self.like = like

    @cached_property
    def gradient(self) -> bool:
        """Whether the operator is the gradient of another one."""
        return schema.is_gradient(self.whole_case.operator)

    @cached_property
    def model(self) -> bool:
        """Whether the operator is a model: a KernelBench problem's ``Model``."""
        return schema.is_model(self.case.operator)

    @cached_property
    def traits(self) -> operators.Traits:
        return operators.traits(self.case.operator)

    @cached_property
    def recipes(self) -> tuple[schema.Tensor, ...]:
        """Recipes of all tensor arguments, empty ones included."""
        return schema.tensors_of(self.case)

    @cached_property
    def filled(self) -> tuple[schema.Tensor, ...]:
        """Recipes of the tensor arguments that have elements."""
        return tuple(recipe for recipe in self.recipes if math.prod(recipe.shape))

    @cached_property
    def has_unbounded(self) -> bool:
        return any(map(is_unbounded, self.filled))

    @cached_property
    def has_complex(self) -> bool:
        return any(map(is_complex, self.filled))

    @cached_property
    def elements(self) -> int:
        """Elements of all storages, those of the cotangents included."""
        return sum(operators.storage_extent(recipe) for recipe in schema.tensors_of(self.whole_case))

    @cached_property
    def result_dtypes(self) -> list[torch.dtype | None]:
        """Dtypes of what a call returns; None for values that are not tensors."""
        return [] if self.like is None else [output.dtype for output in self.like.outputs]


def is_unbounded(recipe: schema.Tensor) -> bool:
    """Whether the tensor is floating-point and drawn from a normal distribution, without a stated range."""
    return isinstance(recipe.fill, schema.Normal) and operators.torch_dtype(recipe.dtype) in FLOATS


def is_bounded(recipe: schema.Tensor) -> bool:
    """Whether the tensor is floating-point and drawn from a stated range."""
    return isinstance(recipe.fill, schema.Uniform) and operators.torch_dtype(recipe.dtype) in FLOATS


def is_normal(recipe: schema.Tensor) -> bool:
    """As :func:`is_unbounded`, but of any floating-point dtype, float8 included."""
    return isinstance(recipe.fill, schema.Normal) and operators.torch_dtype(recipe.dtype).is_floating_point


def is_complex(recipe: schema.Tensor) -> bool:
    """Whether the tensor is complex and drawn from a normal distribution."""
    return isinstance(recipe.fill, schema.Normal) and operators.torch_dtype(recipe.dtype) in _COMPLEX


def takes_numbers(recipe: schema.Tensor) -> bool:
    """Whether the elements are signed real numbers, each drawn independently."""
    drawn = isinstance(recipe.fill, schema.Normal | schema.Uniform | schema.Integers)
    return drawn and operators.torch_dtype(recipe.dtype) in (*FLOATS, *SIGNED)


def may_be_index(recipe: schema.Tensor) -> bool:
    """Whether the elements are integers drawn from a range that begins at 0, as indices are."""
    dtype = operators.torch_dtype(recipe.dtype)
    return isinstance(recipe.fill, schema.Integers) and recipe.fill.low == 0 and dtype in SIGNED
