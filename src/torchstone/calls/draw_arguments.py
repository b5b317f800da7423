"""Draws the arguments of many calls at once, on the device, from a seed that no candidate has seen.

The judge evaluates the reference on these storages, and copies them into the buffers of the worker, the process that
runs the kernel. A call is drawn into flat storages, gaps and offsets included. So the memory between the elements of a
view is as unpredictable as the elements, and the judge can check that it is unchanged.

Each fill has one function. Then :mod:`torchstone.calls.value_mixture` varies the drawn values, and
:mod:`torchstone.calls.nearly_constant_results` changes them where results would be nearly constant. Timed and checked
calls are drawn in the same way.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from torchstone import model_operators, operators, schema
from torchstone.calls import nearly_constant_results, value_mixture
from torchstone.calls.value_mixture import DrawRng
from torchstone.errors import UsageError

_SEED_MASK = (1 << 64) - 1
_INT64_MAX = (1 << 63) - 1
_SHAPED_FILLS = (
    schema.SortedIntegers,
    schema.Simplex,
    schema.PositiveDefinite,
    schema.Given,
    schema.WindowPositions,
)
"""Fills whose values depend on one another, or on their position."""


@dataclass(frozen=True, eq=False)
class DrawnTensor:
    """One tensor argument with its values."""

    recipe: schema.Tensor
    storage: torch.Tensor
    """Flat, ``operators.storage_extent`` elements. A row of a larger allocation when calls were drawn together."""
    view: torch.Tensor
    """The storage viewed with the recipe's shape, strides and offset."""


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
    """Index of this call among them."""
    planted: str = ""
    """Name of the input plan that wrote special values into it (:mod:`torchstone.judging.plans`); empty: none."""

    @cached_property
    def _arguments(self) -> tuple[list[Any], dict[str, Any]]:
        return operators.build_arguments(self.case, [tensor.view for tensor in self.tensors], self.device)

    @property
    def args(self) -> list[Any]:
        """Positional arguments; tensor arguments are the drawn views themselves."""
        return self._arguments[0]

    @property
    def kwargs(self) -> dict[str, Any]:
        """Keyword arguments, with the drawn views as tensors."""
        return self._arguments[1]


def draw_call(case: schema.Case, seed: int, device: torch.device) -> DrawnCall:
    """One call. The same seed on the same device gives the same values."""
    return draw_calls(case, seed, 1, device)[0]


def draw_calls(case: schema.Case, seed: int, count: int, device: torch.device) -> list[DrawnCall]:
    """``count`` calls, drawn together at little cost: one generator call per tensor recipe fills the storages of all.

    The calls are independent of one another. Call k of n is not the call that ``draw_call`` gives for the same seed.
    To replay it, draw n calls again and use the k-th.
    """
    return calls_on(case, draw_storages(case, seed, count, device), seed, count, device)


def draw_storages(case: schema.Case, seed: int, count: int, device: torch.device) -> list[torch.Tensor]:
    """For each tensor argument, the values of these calls, stacked: a tensor ``(count, extent)``."""
    rng = DrawRng(torch.Generator(device).manual_seed(seed & _SEED_MASK), random.Random(seed & _SEED_MASK))
    # Where torch does not promise which of equal values an index means, no value is repeated on purpose.
    repeats = not operators.traits(case.operator).leaves_ties_open
    recipes = schema.tensors_of(case)
    storages = [_draw_column(recipe, count, rng, repeats) for recipe in recipes]
    for recipe, storage in zip(recipes, storages, strict=True):
        if isinstance(recipe.fill, schema.AsMade):
            batched_view(storage, recipe).copy_(model_operators.weight_as_made(case, recipe.fill.weight))
    if nearly_constant_results.applies_to(case.operator):
        for row in _views(recipes, storages, count):
            own = [(recipe, view) for recipe, view in zip(recipes, row, strict=True) if not overlaps(recipe)]
            nearly_constant_results.vary(case.operator, own, rng)
    return storages


def calls_on(
    case: schema.Case, storages: Sequence[torch.Tensor], seed: int, count: int, device: torch.device
) -> list[DrawnCall]:
    """The calls whose values are the rows of stacked storages."""
    recipes = schema.tensors_of(case)
    rows = [storage.unbind(0) for storage in storages]
    return [
        DrawnCall(
            case,
            tuple(DrawnTensor(recipe, rows[place][index], views[place]) for place, recipe in enumerate(recipes)),
            device,
            seed,
            count,
            index,
        )
        for index, views in enumerate(_views(recipes, storages, count))
    ]


def _views(
    recipes: Sequence[schema.Tensor], storages: Sequence[torch.Tensor], count: int
) -> Sequence[tuple[torch.Tensor, ...]]:
    """For each call, the recipes' views onto its storages."""
    columns = [batched_view(storage, recipe).unbind(0) for storage, recipe in zip(storages, recipes, strict=True)]
    return list(zip(*columns, strict=True)) if columns else [()] * count


def batched_view(storages: torch.Tensor, recipe: schema.Tensor) -> torch.Tensor:
    """The recipe's view onto each row of ``(n, extent)`` storages, as one tensor of shape ``(n, *shape)``."""
    strides = recipe.strides if recipe.strides is not None else operators.contiguous_strides(recipe.shape)
    offset = storages.storage_offset() + recipe.offset
    return storages.as_strided((storages.shape[0], *recipe.shape), (storages.stride(0), *strides), offset)


def _draw_column(recipe: schema.Tensor, count: int, rng: DrawRng, repeats: bool) -> torch.Tensor:
    """Draw the values of one tensor argument for ``count`` calls: a tensor ``(count, extent)``, one storage per row.

    ``repeats``: whether some values are repeated on purpose.
    """
    storages = _draw(recipe, (count, operators.storage_extent(recipe)), rng, repeats)
    views = batched_view(storages, recipe)
    if isinstance(recipe.fill, _SHAPED_FILLS) and views.numel():
        _refuse_overlap(recipe)
        views.copy_(_draw_shaped(recipe, views, rng))
    return storages


def _draw(recipe: schema.Tensor, shape: tuple[int, int], rng: DrawRng, repeats: bool) -> torch.Tensor:
    """Draw values for the storages of all calls. ``shape``: ``(calls, extent)``.

    If a fill's values depend on one another, the caller then overwrites the view with :func:`_draw_shaped`.
    """
    dtype = operators.torch_dtype(recipe.dtype)
    _refuse_unsuitable_dtype(recipe, dtype)
    if 0 in shape:
        return torch.empty(shape, dtype=dtype, device=rng.values.device)
    match recipe.fill:
        case schema.Normal() as fill:
            return _draw_normal(fill, shape, dtype, rng, repeats)
        case schema.Uniform() as fill:
            return _draw_uniform(fill, shape, dtype, rng, repeats)
        case schema.Integers() as fill:
            return _draw_integers(fill, shape, dtype, rng, repeats)
        case schema.Booleans() as fill:
            return _draw_booleans(fill, shape, rng)
        case schema.SortedIntegers(low=low, high=high):
            return _draw_integers(schema.Integers(low, high), shape, dtype, rng, repeats)
        case schema.Simplex() | schema.PositiveDefinite():
            return _draw_normal(schema.Normal(), shape, dtype, rng, repeats)
        case schema.Given(values=values):
            return torch.full(shape, values[0] if values else 0, dtype=dtype, device=rng.values.device)
        case schema.WindowPositions(plane=plane):
            return _draw_integers(schema.Integers(0, math.prod(plane)), shape, dtype, rng, repeats)
        case schema.AsMade():
            return torch.zeros(shape, dtype=dtype, device=rng.values.device)


def _draw_shaped(recipe: schema.Tensor, views: torch.Tensor, rng: DrawRng) -> torch.Tensor:
    """Draw ``(calls, *shape)`` values by a fill whose values depend on one another or on their position."""
    match recipe.fill:
        case schema.SortedIntegers() as fill:
            return _draw_sorted(fill, recipe.shape, views, rng)
        case schema.PositiveDefinite() as fill:
            return _positive_definite(fill, recipe.shape, views, rng)
        case schema.Given(values=values):
            return torch.tensor(values, dtype=views.dtype, device=views.device).view(recipe.shape)
        case schema.WindowPositions() as fill:
            return _window_positions(fill, views, rng)
        case _:
            return _probabilities(views, rng)


def _draw_sorted(
    fill: schema.SortedIntegers, shape: tuple[int, ...], views: torch.Tensor, rng: DrawRng
) -> torch.Tensor:
    """Sorted different integers. They are sorted draws from a shorter range, plus their ranks."""
    length = shape[-1] if shape else 1
    room = fill.high - fill.low - length + 1
    if room < 1:
        raise UsageError(f"there are no {length} different integers in [{fill.low}, {fill.high}).")
    drawn = rng.below(room, *views.shape)
    ranks = torch.arange(length, device=views.device)
    return (drawn.sort(dim=-1).values if shape else drawn).add_(fill.low).add_(ranks if shape else 0)


def _probabilities(views: torch.Tensor, rng: DrawRng) -> torch.Tensor:
    """Normalised exponential draws: uniform on the simplex."""
    drawn = torch.empty(views.shape, dtype=_real_draw_dtype(views.dtype), device=views.device)
    drawn.exponential_(generator=rng.values)
    return drawn / drawn.sum(dim=-1, keepdim=True) if views.dim() > 1 else torch.ones_like(drawn)


def _positive_definite(
    fill: schema.PositiveDefinite, shape: tuple[int, ...], views: torch.Tensor, rng: DrawRng
) -> torch.Tensor:
    """Matrices ``G G* / n + least * I`` with normal ``G``: eigenvalues between ``least`` and about ``least + 4``."""
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise UsageError(f"positive-definite matrices are square, got shape {list(shape)}.")
    dtype = _real_draw_dtype(views.dtype)
    dtype = dtype.to_complex() if views.dtype.is_complex else dtype
    factor = torch.randn(views.shape, generator=rng.values, dtype=dtype, device=views.device)
    unit = torch.eye(shape[-1], dtype=dtype, device=views.device)
    product = factor @ factor.mH / shape[-1]
    return (product + product.mH) / 2 + fill.least * unit


def _window_positions(fill: schema.WindowPositions, views: torch.Tensor, rng: DrawRng) -> torch.Tensor:
    """Flat index of a random element of each window: any of its rows and columns in the plane, equally likely."""
    rows, columns = (_window_positions_on_axis(fill, views, axis, rng) for axis in (0, 1))
    return rows.mul_(fill.plane[1]).add_(columns)


def _window_positions_on_axis(
    fill: schema.WindowPositions, views: torch.Tensor, axis: int, rng: DrawRng
) -> torch.Tensor:
    """Random positions within each window along one axis of the plane; ``axis`` is 0 for rows, 1 for columns."""
    size, step, dilation = fill.plane[axis], fill.stride[axis], fill.dilation[axis]
    begin = torch.arange(views.shape[axis - 2], device=views.device) * step - fill.padding[axis]
    first = begin.neg().clamp_(min=0).add_(dilation - 1).div_(dilation, rounding_mode="floor")
    last = (size - 1 - begin).div_(dilation, rounding_mode="floor").clamp_(max=fill.kernel[axis] - 1)
    begin, first, last = (line.view(-1, 1) if axis == 0 else line for line in (begin, first, last))
    chosen = rng.uniform(*views.shape).mul_(last - first + 1).long().add_(first)
    return torch.minimum(chosen, last).mul_(dilation).add_(begin).clamp_(0, size - 1)


def overlaps(recipe: schema.Tensor) -> bool:
    """Whether the recipe is expanded, so that several elements share one place in memory."""
    strides = recipe.strides or ()
    return any(stride == 0 and size > 1 for stride, size in zip(strides, recipe.shape, strict=False))


def _refuse_overlap(recipe: schema.Tensor) -> None:
    if overlaps(recipe):
        name = str(recipe.fill.__struct_config__.tag)
        raise UsageError(f"the fill '{name}' needs memory of its own for each element, not an expanded view.")


def _refuse_unsuitable_dtype(recipe: schema.Tensor, dtype: torch.dtype) -> None:
    continuous = dtype.is_floating_point or dtype.is_complex
    match recipe.fill:
        case schema.Normal() | schema.Uniform() | schema.PositiveDefinite():
            fits, instead = continuous, "'integers' or 'booleans'"
        case schema.Simplex():
            fits, instead = dtype.is_floating_point, "'normal', 'integers' or 'booleans'"
        case schema.WindowPositions():
            fits = len(recipe.shape) > 1 and not continuous and dtype is not torch.bool
            instead = "integers with two dimensions or more"
        case schema.Integers() | schema.SortedIntegers():
            fits, instead = not dtype.is_complex and dtype is not torch.bool, "'normal' or 'booleans'"
        case schema.Booleans():
            fits, instead = dtype is torch.bool, "'integers' with low=0, high=2"
        case schema.Given(values=values):
            fits, instead = len(values) == math.prod(recipe.shape), "as many values as the shape has elements"
        case schema.AsMade():
            fits, instead = True, ""
    if not fits:
        name = str(recipe.fill.__struct_config__.tag)
        raise UsageError(f"the fill '{name}' does not fit dtype {recipe.dtype}. Use {instead}.")


def _draw_normal(
    fill: schema.Normal, shape: tuple[int, int], dtype: torch.dtype, rng: DrawRng, repeats: bool
) -> torch.Tensor:
    """Normal values. Complex ones are circular with the same variance, and the mean is added to the real part."""
    drawn = _empty_real(shape, dtype, rng)
    mean, std = (0.0, fill.std / math.sqrt(2.0)) if dtype.is_complex else (fill.mean, fill.std)
    drawn.normal_(mean, std, generator=rng.values)
    value_mixture.vary_normal(drawn, mean, std, rng, repeats=repeats)
    if dtype.is_complex:
        drawn[:, 0::2] += fill.mean
        return torch.view_as_complex(drawn.view(*shape, 2)).to(dtype)
    values = _rounded(drawn, dtype)
    if fill.specials:
        value_mixture.sprinkle_specials(values, rng)
    return values


def _draw_uniform(
    fill: schema.Uniform, shape: tuple[int, int], dtype: torch.dtype, rng: DrawRng, repeats: bool
) -> torch.Tensor:
    """Values in [low, high) also *after* rounding to the dtype: the upper end stays excluded."""
    if not fill.low < fill.high:
        raise UsageError(f"uniform values need low < high, got low={fill.low:g}, high={fill.high:g}.")
    drawn = _empty_real(shape, dtype, rng).uniform_(fill.low, fill.high, generator=rng.values)
    value_mixture.vary_uniform(drawn, fill.low, fill.high, rng, repeats=repeats)
    if dtype.is_complex:
        return torch.view_as_complex(drawn.view(*shape, 2)).to(dtype)
    lowest, highest = _representable_at_least(fill.low, dtype), -_representable_above(-fill.high, dtype)
    return _rounded(drawn.clamp_(lowest, max(lowest, highest)), dtype)


def _draw_integers(
    fill: schema.Integers, shape: tuple[int, int], dtype: torch.dtype, rng: DrawRng, repeats: bool
) -> torch.Tensor:
    """Integers from the part of the range that the dtype can hold. Floating-point dtypes get them as whole numbers."""
    low, high = fill.low, fill.high
    if not dtype.is_floating_point:
        limits = torch.iinfo(dtype)
        low, high = max(low, limits.min), min(high, limits.max + 1)
    high = min(high, _INT64_MAX)
    if low >= high:
        raise UsageError(f"no {dtype} lies in the integer range [{fill.low}, {fill.high}).")
    values = torch.empty(shape, dtype=torch.int64, device=rng.values.device)
    values.random_(low, high, generator=rng.values)
    value_mixture.vary_integers(values, low, high, rng, repeats=repeats)
    return values.to(dtype)


def _draw_booleans(fill: schema.Booleans, shape: tuple[int, int], rng: DrawRng) -> torch.Tensor:
    if not 0.0 <= fill.p_true <= 1.0:
        raise UsageError(f"booleans need 0 <= p_true <= 1, got {fill.p_true:g}.")
    values = torch.empty(shape, dtype=torch.bool, device=rng.values.device)
    values.bernoulli_(fill.p_true, generator=rng.values)
    value_mixture.vary_booleans(values, rng)
    return values


def _empty_real(shape: tuple[int, int], dtype: torch.dtype, rng: DrawRng) -> torch.Tensor:
    """Uninitialized memory for a real draw; a complex number takes two elements."""
    calls, elements = shape
    size = (calls, 2 * elements if dtype.is_complex else elements)
    return torch.empty(size, dtype=_real_draw_dtype(dtype), device=rng.values.device)


def _real_draw_dtype(dtype: torch.dtype) -> torch.dtype:
    """The real dtype in which values are drawn: float64 for float64 and complex128, else float32."""
    return torch.float64 if dtype in (torch.float64, torch.complex128) else torch.float32


def _rounded(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The values rounded to the dtype, limited to its largest number: a normal draw has no infinities."""
    if values.dtype == dtype:
        return values
    largest = torch.finfo(dtype).max
    return values.clamp_(-largest, largest).to(dtype)


def _representable_at_least(value: float, dtype: torch.dtype) -> float:
    rounded = float(torch.tensor(value, dtype=torch.float64).to(dtype))
    return rounded if rounded >= value else next_up(rounded, dtype)


def _representable_above(value: float, dtype: torch.dtype) -> float:
    rounded = float(torch.tensor(value, dtype=torch.float64).to(dtype))
    return rounded if rounded > value else next_up(rounded, dtype)


def next_up(value: float, dtype: torch.dtype) -> float:
    """The next larger number of the dtype, for a value that it holds exactly."""
    limits = torch.finfo(dtype)
    fraction, exponent = math.frexp(value)
    if fraction == -0.5:  # Below a power of two in magnitude, the spacing of numbers is half as large.
        exponent -= 1
    return value + max(limits.eps * 2.0 ** (exponent - 1), limits.smallest_normal * limits.eps)
