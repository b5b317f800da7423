"""The values of a call: drawn afresh from a seed that no candidate has seen, on the device, many calls at once.

Separate from the reference because the judge also copies these storages into the worker's buffers. A call is
drawn into flat storages, gaps and offsets included, so that what lies between the elements of a view is as
unpredictable as the elements, and can be checked to be untouched afterwards.

One function per fill: a richer mixture for a fill (scales, tails, spikes) replaces the body of its function.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from torchstone import operators, schema
from torchstone.errors import UsageError

_SEED_MASK = (1 << 64) - 1
_INT64_MAX = (1 << 63) - 1


@dataclass(frozen=True, eq=False)
class DrawnTensor:
    """One tensor argument with its values."""

    recipe: schema.Tensor
    storage: torch.Tensor
    """Flat, ``operators.storage_extent`` elements. A row of a larger allocation when calls were drawn together."""
    view: torch.Tensor
    """The recipe's shape, strides and offset onto the storage."""


@dataclass(frozen=True, eq=False)
class DrawnCall:
    """One call of a case with its values. ``(seed, count, index)`` draw it again, on the same device type."""

    case: schema.Case
    tensors: tuple[DrawnTensor, ...]
    """In the order of ``schema.tensors_of``."""
    device: torch.device
    seed: int
    count: int = 1
    """How many calls were drawn together with this one."""
    index: int = 0
    """Which of them this one is."""

    @cached_property
    def _arguments(self) -> tuple[list[Any], dict[str, Any]]:
        return operators.build_arguments(self.case, [tensor.view for tensor in self.tensors], self.device)

    @property
    def args(self) -> list[Any]:
        """Positional arguments, the drawn views themselves in the tensors' places."""
        return self._arguments[0]

    @property
    def kwargs(self) -> dict[str, Any]:
        """Keyword arguments, likewise."""
        return self._arguments[1]


def draw_call(case: schema.Case, seed: int, device: torch.device) -> DrawnCall:
    """One call. The same seed on the same device gives the same values."""
    return draw_calls(case, seed, 1, device)[0]


def draw_calls(case: schema.Case, seed: int, count: int, device: torch.device) -> list[DrawnCall]:
    """``count`` calls at the price of few: one generator call per tensor recipe fills the storages of all.

    The calls are independent of one another, but call k of n is not the call that ``draw_call`` gives for the
    same seed: to replay it, draw n again and take the k-th.
    """
    generator = torch.Generator(device).manual_seed(seed & _SEED_MASK)
    columns = [_draw_column(recipe, count, generator) for recipe in schema.tensors_of(case)]
    rows: Sequence[tuple[DrawnTensor, ...]] = list(zip(*columns, strict=True)) if columns else [()] * count
    return [DrawnCall(case, row, device, seed, count, index) for index, row in enumerate(rows)]


def batched_view(storages: torch.Tensor, recipe: schema.Tensor) -> torch.Tensor:
    """The recipe's view onto each row of ``(n, extent)`` storages, as one tensor of shape ``(n, *shape)``."""
    strides = recipe.strides if recipe.strides is not None else operators.contiguous_strides(recipe.shape)
    offset = storages.storage_offset() + recipe.offset
    return storages.as_strided((storages.shape[0], *recipe.shape), (storages.stride(0), *strides), offset)


def _draw_column(recipe: schema.Tensor, count: int, generator: torch.Generator) -> list[DrawnTensor]:
    """One tensor argument for every call."""
    extent = operators.storage_extent(recipe)
    storages = _draw(recipe, (count, extent), generator)
    views = batched_view(storages, recipe).unbind(0)
    return [DrawnTensor(recipe, storage, view) for storage, view in zip(storages.unbind(0), views, strict=True)]


def _draw(recipe: schema.Tensor, shape: tuple[int, int], generator: torch.Generator) -> torch.Tensor:
    dtype = operators.torch_dtype(recipe.dtype)
    _refuse_misfit(recipe, dtype)
    if 0 in shape:
        return torch.empty(shape, dtype=dtype, device=generator.device)
    match recipe.fill:
        case schema.Normal() as fill:
            return _draw_normal(fill, shape, dtype, generator)
        case schema.Uniform() as fill:
            return _draw_uniform(fill, shape, dtype, generator)
        case schema.Integers() as fill:
            return _draw_integers(fill, shape, dtype, generator)
        case schema.Booleans() as fill:
            return _draw_booleans(fill, shape, generator)


def _refuse_misfit(recipe: schema.Tensor, dtype: torch.dtype) -> None:
    continuous = dtype.is_floating_point or dtype.is_complex
    match recipe.fill:
        case schema.Normal() | schema.Uniform():
            fits, instead = continuous, "'integers' or 'booleans'"
        case schema.Integers():
            fits, instead = not dtype.is_complex and dtype is not torch.bool, "'normal' or 'booleans'"
        case schema.Booleans():
            fits, instead = dtype is torch.bool, "'integers' with low=0, high=2"
    if not fits:
        name = str(recipe.fill.__struct_config__.tag)
        raise UsageError(f"the fill '{name}' does not fit dtype {recipe.dtype}. Use {instead}.")


def _draw_normal(
    fill: schema.Normal, shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator
) -> torch.Tensor:
    """Real: normal around the mean. Complex: circular with the same variance, the mean added to the real part."""
    if dtype.is_complex:
        parts = torch.empty((*shape, 2), dtype=_real_draw_dtype(dtype), device=generator.device)
        parts.normal_(0.0, fill.std / math.sqrt(2.0), generator=generator)
        parts[..., 0] += fill.mean
        return torch.view_as_complex(parts).to(dtype)
    values = torch.empty(shape, dtype=_real_draw_dtype(dtype), device=generator.device)
    values.normal_(fill.mean, fill.std, generator=generator)
    return _rounded(values, dtype)


def _draw_uniform(
    fill: schema.Uniform, shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator
) -> torch.Tensor:
    """Uniform in [low, high) *after* rounding to the dtype: a domain that excludes its end stays excluded."""
    if not fill.low < fill.high:
        raise UsageError(f"uniform values need low < high, got low={fill.low:g}, high={fill.high:g}.")
    if dtype.is_complex:
        parts = torch.empty((*shape, 2), dtype=_real_draw_dtype(dtype), device=generator.device)
        return torch.view_as_complex(parts.uniform_(fill.low, fill.high, generator=generator)).to(dtype)
    values = torch.empty(shape, dtype=_real_draw_dtype(dtype), device=generator.device)
    values.uniform_(fill.low, fill.high, generator=generator)
    lowest, highest = _representable_at_least(fill.low, dtype), -_representable_above(-fill.high, dtype)
    return _rounded(values.clamp_(lowest, max(lowest, highest)), dtype)


def _draw_integers(
    fill: schema.Integers, shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator
) -> torch.Tensor:
    """Uniform integers; of the demanded range, the part that the dtype can hold. Float dtypes get whole numbers."""
    low, high = fill.low, fill.high
    if not dtype.is_floating_point:
        limits = torch.iinfo(dtype)
        low, high = max(low, limits.min), min(high, limits.max + 1)
    high = min(high, _INT64_MAX)
    if low >= high:
        raise UsageError(f"no {dtype} lies in the integer range [{fill.low}, {fill.high}).")
    values = torch.empty(shape, dtype=torch.int64, device=generator.device)
    return values.random_(low, high, generator=generator).to(dtype)


def _draw_booleans(fill: schema.Booleans, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    if not 0.0 <= fill.p_true <= 1.0:
        raise UsageError(f"booleans need 0 <= p_true <= 1, got {fill.p_true:g}.")
    return torch.empty(shape, dtype=torch.bool, device=generator.device).bernoulli_(fill.p_true, generator=generator)


def _real_draw_dtype(dtype: torch.dtype) -> torch.dtype:
    """Wide dtypes are drawn as they are; narrower ones are rounded from float32 draws."""
    return torch.float64 if dtype in (torch.float64, torch.complex128) else torch.float32


def _rounded(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """To the dtype, without overflowing to infinity: a recipe never asks for non-finite values."""
    if values.dtype == dtype:
        return values
    largest = torch.finfo(dtype).max
    return values.clamp_(-largest, largest).to(dtype)


def _representable_at_least(value: float, dtype: torch.dtype) -> float:
    rounded = float(torch.tensor(value, dtype=torch.float64).to(dtype))
    return rounded if rounded >= value else _next_up(rounded, dtype)


def _representable_above(value: float, dtype: torch.dtype) -> float:
    rounded = float(torch.tensor(value, dtype=torch.float64).to(dtype))
    return rounded if rounded > value else _next_up(rounded, dtype)


def _next_up(value: float, dtype: torch.dtype) -> float:
    """The next larger number of the dtype, for a value that it holds exactly."""
    limits = torch.finfo(dtype)
    fraction, exponent = math.frexp(value)
    if fraction == -0.5:  # Below a power of two in magnitude the numbers lie twice as dense.
        exponent -= 1
    return value + max(limits.eps * 2.0 ** (exponent - 1), limits.smallest_normal * limits.eps)
