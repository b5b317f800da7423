"""Draws the arguments of many calls at once, on the device, from a seed that no candidate has seen.

The judge evaluates the reference on these storages, and copies them into the buffers of the worker, the process that
runs the kernel. A call is drawn into flat storages, gaps and offsets included. So the memory between the elements of a
view is as unpredictable as the elements, and the judge can check that it is untouched.

One function per fill; :mod:`torchstone.calls.value_mixture` then varies what was drawn, and
:mod:`torchstone.calls.nearly_constant_results` makes results differ that would be nearly constant. Timed and checked
calls share all of it.
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
    planted: str = ""
    """Name of the input plan that wrote special values into it (:mod:`torchstone.judging.plans`); empty: none."""

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

    The calls are independent of one another. Call k of n is not the call that ``draw_call`` gives for the same seed:
    to replay it, draw n again and take the k-th.
    """
    return calls_on(case, draw_storages(case, seed, count, device), seed, count, device)


def draw_storages(case: schema.Case, seed: int, count: int, device: torch.device) -> list[torch.Tensor]:
    """For each tensor argument ``(count, extent)``: the values of these calls, stacked."""
    dice = DrawRng(torch.Generator(device).manual_seed(seed & _SEED_MASK), random.Random(seed & _SEED_MASK))
    # Where torch does not promise which of equal values an index means, no value is repeated on purpose.
    repeats = not operators.traits(case.operator).leaves_ties_open
    recipes = schema.tensors_of(case)
    storages = [_draw_column(recipe, count, dice, repeats) for recipe in recipes]
    for recipe, storage in zip(recipes, storages, strict=True):
        if isinstance(recipe.fill, schema.AsMade):
            batched_view(storage, recipe).copy_(model_operators.weight_as_made(case, recipe.fill.weight))
    if nearly_constant_results.applies_to(case.operator):
        for row in _views(recipes, storages, count):
            own = [(recipe, view) for recipe, view in zip(recipes, row, strict=True) if not overlaps(recipe)]
            nearly_constant_results.vary(case.operator, own, dice)
    return storages


def calls_on(
    case: schema.Case, storages: Sequence[torch.Tensor], seed: int, count: int, device: torch.device
) -> list[DrawnCall]:
    """The calls that stacked storages hold, each a row of them."""
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
    """Per call, the recipes' views onto its storages."""
    columns = [batched_view(storage, recipe).unbind(0) for storage, recipe in zip(storages, recipes, strict=True)]
    return list(zip(*columns, strict=True)) if columns else [()] * count


def batched_view(storages: torch.Tensor, recipe: schema.Tensor) -> torch.Tensor:
    """The recipe's view onto each row of ``(n, extent)`` storages, as one tensor of shape ``(n, *shape)``."""
    strides = recipe.strides if recipe.strides is not None else operators.contiguous_strides(recipe.shape)
    offset = storages.storage_offset() + recipe.offset
    return storages.as_strided((storages.shape[0], *recipe.shape), (storages.stride(0), *strides), offset)


def _draw_column(recipe: schema.Tensor, count: int, dice: DrawRng, repeats: bool) -> torch.Tensor:
    """The storages of one tensor argument for every call."""
    storages = _draw(recipe, (count, operators.storage_extent(recipe)), dice, repeats)
    views = batched_view(storages, recipe)
    if isinstance(recipe.fill, _SHAPED_FILLS) and views.numel():
        _refuse_overlap(recipe)
        views.copy_(_draw_shaped(recipe, views, dice))
    return storages


def _draw(recipe: schema.Tensor, shape: tuple[int, int], dice: DrawRng, repeats: bool) -> torch.Tensor:
    """Storages with values. For fills that depend on the shape, :func:`_draw_shaped` then overwrites the view."""
    dtype = operators.torch_dtype(recipe.dtype)
    _refuse_misfit(recipe, dtype)
    if 0 in shape:
        return torch.empty(shape, dtype=dtype, device=dice.values.device)
    match recipe.fill:
        case schema.Normal() as fill:
            return _draw_normal(fill, shape, dtype, dice, repeats)
        case schema.Uniform() as fill:
            return _draw_uniform(fill, shape, dtype, dice, repeats)
        case schema.Integers() as fill:
            return _draw_integers(fill, shape, dtype, dice, repeats)
        case schema.Booleans() as fill:
            return _draw_booleans(fill, shape, dice)
        case schema.SortedIntegers(low=low, high=high):
            return _draw_integers(schema.Integers(low, high), shape, dtype, dice, repeats)
        case schema.Simplex() | schema.PositiveDefinite():
            return _draw_normal(schema.Normal(), shape, dtype, dice, repeats)
        case schema.Given(values=values):
            return torch.full(shape, values[0] if values else 0, dtype=dtype, device=dice.values.device)
        case schema.WindowPositions(plane=plane):
            return _draw_integers(schema.Integers(0, math.prod(plane)), shape, dtype, dice, repeats)
        case schema.AsMade():
            return torch.zeros(shape, dtype=dtype, device=dice.values.device)


def _draw_shaped(recipe: schema.Tensor, views: torch.Tensor, dice: DrawRng) -> torch.Tensor:
    """Values for ``(calls, *shape)`` of fills whose values depend on one another or on their position."""
    match recipe.fill:
        case schema.SortedIntegers() as fill:
            return _increasing(fill, recipe.shape, views, dice)
        case schema.PositiveDefinite() as fill:
            return _positive_definite(fill, recipe.shape, views, dice)
        case schema.Given(values=values):
            return torch.tensor(values, dtype=views.dtype, device=views.device).view(recipe.shape)
        case schema.WindowPositions() as fill:
            return _window_positions(fill, views, dice)
        case _:
            return _probabilities(views, dice)


def _increasing(
    fill: schema.SortedIntegers, shape: tuple[int, ...], views: torch.Tensor, dice: DrawRng
) -> torch.Tensor:
    """Sorted draws from a range shorter by the row's length, spread by their ranks: every subset is as likely."""
    length = shape[-1] if shape else 1
    room = fill.high - fill.low - length + 1
    if room < 1:
        raise UsageError(f"there are no {length} different integers in [{fill.low}, {fill.high}).")
    drawn = dice.below(room, *views.shape)
    ranks = torch.arange(length, device=views.device)
    return (drawn.sort(dim=-1).values if shape else drawn).add_(fill.low).add_(ranks if shape else 0)


def _probabilities(views: torch.Tensor, dice: DrawRng) -> torch.Tensor:
    """Normalised exponentials: every point of the simplex is as likely."""
    drawn = torch.empty(views.shape, dtype=_real_draw_dtype(views.dtype), device=views.device)
    drawn.exponential_(generator=dice.values)
    return drawn / drawn.sum(dim=-1, keepdim=True) if views.dim() > 1 else torch.ones_like(drawn)


def _positive_definite(
    fill: schema.PositiveDefinite, shape: tuple[int, ...], views: torch.Tensor, dice: DrawRng
) -> torch.Tensor:
    """``G G* / n + least``: eigenvalues between ``least`` and about ``least + 4``."""
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise UsageError(f"positive-definite matrices are square, got shape {list(shape)}.")
    dtype = _real_draw_dtype(views.dtype)
    dtype = dtype.to_complex() if views.dtype.is_complex else dtype
    factor = torch.randn(views.shape, generator=dice.values, dtype=dtype, device=views.device)
    unit = torch.eye(shape[-1], dtype=dtype, device=views.device)
    product = factor @ factor.mH / shape[-1]
    return (product + product.mH) / 2 + fill.least * unit


def _window_positions(fill: schema.WindowPositions, views: torch.Tensor, dice: DrawRng) -> torch.Tensor:
    """Any row and any column that the window has in the plane, each as likely."""
    rows, columns = (_in_windows(fill, views, axis, dice) for axis in (0, 1))
    return rows.mul_(fill.plane[1]).add_(columns)


def _in_windows(fill: schema.WindowPositions, views: torch.Tensor, axis: int, dice: DrawRng) -> torch.Tensor:
    """Positions along one axis of the plane; ``axis`` is 0 for rows, 1 for columns."""
    size, step, dilation = fill.plane[axis], fill.stride[axis], fill.dilation[axis]
    begin = torch.arange(views.shape[axis - 2], device=views.device) * step - fill.padding[axis]
    first = begin.neg().clamp_(min=0).add_(dilation - 1).div_(dilation, rounding_mode="floor")
    last = (size - 1 - begin).div_(dilation, rounding_mode="floor").clamp_(max=fill.kernel[axis] - 1)
    begin, first, last = (line.view(-1, 1) if axis == 0 else line for line in (begin, first, last))
    chosen = dice.uniform(*views.shape).mul_(last - first + 1).long().add_(first)
    return torch.minimum(chosen, last).mul_(dilation).add_(begin).clamp_(0, size - 1)


def overlaps(recipe: schema.Tensor) -> bool:
    """Whether the recipe is expanded, so that several elements share one place in memory."""
    strides = recipe.strides or ()
    return any(stride == 0 and size > 1 for stride, size in zip(strides, recipe.shape, strict=False))


def _refuse_overlap(recipe: schema.Tensor) -> None:
    if overlaps(recipe):
        name = str(recipe.fill.__struct_config__.tag)
        raise UsageError(f"the fill '{name}' needs memory of its own for each element, not an expanded view.")


def _refuse_misfit(recipe: schema.Tensor, dtype: torch.dtype) -> None:
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
    fill: schema.Normal, shape: tuple[int, int], dtype: torch.dtype, dice: DrawRng, repeats: bool
) -> torch.Tensor:
    """Real: normal around the mean. Complex: circular with the same variance, the mean added to the real part."""
    drawn = _empty_parts(shape, dtype, dice)
    mean, std = (0.0, fill.std / math.sqrt(2.0)) if dtype.is_complex else (fill.mean, fill.std)
    drawn.normal_(mean, std, generator=dice.values)
    value_mixture.vary_normal(drawn, mean, std, dice, repeats=repeats)
    if dtype.is_complex:
        drawn[:, 0::2] += fill.mean
        return torch.view_as_complex(drawn.view(*shape, 2)).to(dtype)
    values = _rounded(drawn, dtype)
    if fill.specials:
        value_mixture.sprinkle_specials(values, dice)
    return values


def _draw_uniform(
    fill: schema.Uniform, shape: tuple[int, int], dtype: torch.dtype, dice: DrawRng, repeats: bool
) -> torch.Tensor:
    """In [low, high) *after* rounding to the dtype: a domain that excludes its end stays excluded."""
    if not fill.low < fill.high:
        raise UsageError(f"uniform values need low < high, got low={fill.low:g}, high={fill.high:g}.")
    drawn = _empty_parts(shape, dtype, dice).uniform_(fill.low, fill.high, generator=dice.values)
    value_mixture.vary_uniform(drawn, fill.low, fill.high, dice, repeats=repeats)
    if dtype.is_complex:
        return torch.view_as_complex(drawn.view(*shape, 2)).to(dtype)
    lowest, highest = _representable_at_least(fill.low, dtype), -_representable_above(-fill.high, dtype)
    return _rounded(drawn.clamp_(lowest, max(lowest, highest)), dtype)


def _draw_integers(
    fill: schema.Integers, shape: tuple[int, int], dtype: torch.dtype, dice: DrawRng, repeats: bool
) -> torch.Tensor:
    """Integers; of the demanded range, the part that the dtype can hold. Float dtypes get whole numbers."""
    low, high = fill.low, fill.high
    if not dtype.is_floating_point:
        limits = torch.iinfo(dtype)
        low, high = max(low, limits.min), min(high, limits.max + 1)
    high = min(high, _INT64_MAX)
    if low >= high:
        raise UsageError(f"no {dtype} lies in the integer range [{fill.low}, {fill.high}).")
    values = torch.empty(shape, dtype=torch.int64, device=dice.values.device)
    values.random_(low, high, generator=dice.values)
    value_mixture.vary_integers(values, low, high, dice, repeats=repeats)
    return values.to(dtype)


def _draw_booleans(fill: schema.Booleans, shape: tuple[int, int], dice: DrawRng) -> torch.Tensor:
    if not 0.0 <= fill.p_true <= 1.0:
        raise UsageError(f"booleans need 0 <= p_true <= 1, got {fill.p_true:g}.")
    values = torch.empty(shape, dtype=torch.bool, device=dice.values.device)
    values.bernoulli_(fill.p_true, generator=dice.values)
    value_mixture.vary_booleans(values, dice)
    return values


def _empty_parts(shape: tuple[int, int], dtype: torch.dtype, dice: DrawRng) -> torch.Tensor:
    """Room for the draw; the parts of a complex number are two elements."""
    calls, elements = shape
    size = (calls, 2 * elements if dtype.is_complex else elements)
    return torch.empty(size, dtype=_real_draw_dtype(dtype), device=dice.values.device)


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
    return rounded if rounded >= value else next_up(rounded, dtype)


def _representable_above(value: float, dtype: torch.dtype) -> float:
    rounded = float(torch.tensor(value, dtype=torch.float64).to(dtype))
    return rounded if rounded > value else next_up(rounded, dtype)


def next_up(value: float, dtype: torch.dtype) -> float:
    """The next larger number of the dtype, for a value that it holds exactly."""
    limits = torch.finfo(dtype)
    fraction, exponent = math.frexp(value)
    if fraction == -0.5:  # Just below a power of two in magnitude, numbers are half as far apart.
        exponent -= 1
    return value + max(limits.eps * 2.0 ** (exponent - 1), limits.smallest_normal * limits.eps)
