"""One call in float64, and how strongly its results depend on its inputs.

The slope of a result is how far it moves when every float input element moves by a part of itself, up or down at
random: a central difference, so that jumps (floor, sign, near ties) can be told from slopes. What a kernel's
rounding errors do to a result is of the same kind, which is why bounds are built on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from torchstone import operators
from torchstone.judging.evaluation import OPERATOR_ERRORS, Evaluator, Place, Tensors, is_continuous, wide_dtype
from torchstone.judging.inputs import DrawnCall, batched_view

STEP = 2.0**-24
"""Relative step of the differences: far above float64's noise, far below where curvature shows."""
FEW_ELEMENTS = 1 << 14
"""Calls up to this size are probed with three pairs of steps, for want of neighbours that tell the scale."""
MANY_ELEMENTS = 1 << 16
"""Calls above are probed with one pair; two in between."""
PIECE_ELEMENTS = {"cpu": 1 << 18, "cuda": 1 << 24}
"""Elements that are worked on at a time where there are many: temporaries stay in the cache, or in bounds."""
_SALT = 0x5EED


@dataclass(frozen=True, eq=False)
class Probed:
    """One result of one call."""

    exact: torch.Tensor
    """In float64 or complex128, on the rounded inputs of the case."""
    slope: torch.Tensor
    """float64, same shape. Root mean square over the pairs of steps; 0 where there is a jump, or no number."""


_LARGEST_CANCELLED = 4.0
_CANCELLED_SHARE = 0.125


def probe(evaluator: Evaluator, call: DrawnCall) -> dict[Place, Probed]:
    """Every result that is continuous in float64. torch's errors come out where the operator does not run in it."""
    wide = [_widened(tensor.storage) for tensor in call.tensors]
    private = [s.clone() if evaluator.is_written(i) else s for i, s in enumerate(wide)]
    exact = evaluator.wide(private, _views(evaluator, private))
    exact = {place: tensor for place, tensor in exact.items() if tensor.dtype in (torch.float64, torch.complex128)}
    slopes = {place: torch.zeros(t.shape, dtype=torch.float64, device=t.device) for place, t in exact.items()}
    if exact and any(is_continuous(storage.dtype) and storage.numel() for storage in wide):
        _add_slopes(evaluator, call, wide, exact, slopes)
        _allow_cancellation(evaluator, wide, exact, slopes)
    return {place: Probed(tensor, slopes[place]) for place, tensor in exact.items()}


def _allow_cancellation(evaluator: Evaluator, wide: Sequence[torch.Tensor], exact: Tensors, slopes: Tensors) -> None:
    """Where a function of one tensor is computed through larger numbers, their rounding stays in the small result.

    ``gelu(-3)`` is -0.004, the difference of two numbers near 1.5: honest kernels differ there by a rounding of those,
    which the slope does not show. Up to a size only: what is far larger than 1 is not where functions cancel.
    """
    if torch.Tag.pointwise not in evaluator.operator.tags or len(wide) != 1:
        return
    magnitude = _views(evaluator, wide)[0].abs().clamp_(max=_LARGEST_CANCELLED).mul_(_CANCELLED_SHARE)
    for place, slope in slopes.items():
        moved = torch.isclose(slope, exact[place].abs(), rtol=1e-6, atol=0.0).all()
        if slope.shape == magnitude.shape and not slope.is_complex() and not bool(moved):
            slope.copy_(torch.where(slope > 0, torch.maximum(slope, magnitude), slope))  # a jump stays a jump


def pieces(elements: int, device: torch.device) -> list[slice]:
    """A flat tensor cut into stretches of a size that suits the device."""
    size = piece_elements(device)
    return [slice(start, min(start + size, elements)) for start in range(0, elements, size)]


def piece_elements(device: torch.device) -> int:
    """How many elements to work on at a time."""
    return PIECE_ELEMENTS.get(device.type, PIECE_ELEMENTS["cpu"])


def _add_slopes(
    evaluator: Evaluator, call: DrawnCall, wide: Sequence[torch.Tensor], exact: Tensors, slopes: Tensors
) -> None:
    elements = sum(t.numel() for t in [*wide, *exact.values()])
    pairs = 3 if elements <= FEW_ELEMENTS else 2 if elements <= MANY_ELEMENTS else 1
    generator = torch.Generator(call.device).manual_seed((call.seed ^ _SALT) & ((1 << 63) - 1))
    for _ in range(pairs):
        ahead, behind = _step_apart(evaluator, wide, generator)
        for place, tensor in exact.items():
            _add_squared_slope(slopes[place], ahead.get(place), tensor, behind.get(place), 1.0 / pairs)
    for slope in slopes.values():
        slope.sqrt_()


def _step_apart(
    evaluator: Evaluator, wide: Sequence[torch.Tensor], generator: torch.Generator
) -> tuple[Tensors, Tensors]:
    """The results with all float elements moved by one step of random sign, and with all moved the other way."""
    plus = _Moved(evaluator)
    minus = _Moved(evaluator)
    for position, storage in enumerate(wide):
        plus_storage, minus_storage = _moved(evaluator, position, storage, generator)
        plus.add(position, plus_storage)
        minus.add(position, minus_storage)
    return plus.results(), minus.results()


class _Moved:
    """A call with moved inputs, argument by argument."""

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator
        self._storages: list[torch.Tensor] = []
        self._views: list[torch.Tensor] = []

    def add(self, position: int, moved: torch.Tensor) -> None:
        """Take a written argument's storage, or the dense values of one that is only read."""
        self._storages.append(moved)
        written = self._evaluator.is_written(position)
        self._views.append(_view(self._evaluator, position, moved) if written else moved)

    def results(self) -> Tensors:
        """Nothing where the moved inputs leave the operator's domain: then no slope is known."""
        try:
            return self._evaluator.wide(self._storages, self._views)
        except OPERATOR_ERRORS:
            return {}


def _moved(
    evaluator: Evaluator, position: int, storage: torch.Tensor, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """One argument moved both ways.

    Arguments that are only read are moved element by element of the *view*: a kernel that reads an expanded
    element twice makes independent errors with it, too. Written ones are moved in their storage, inside the view.
    """
    written = evaluator.is_written(position)
    values = storage if written else _view(evaluator, position, storage)
    if not is_continuous(storage.dtype):
        return (values.clone(), values.clone()) if written else (values, values)
    steps = _coin_flips(values, generator).to(values.dtype).mul_(2.0 * STEP).sub_(STEP)
    if written:
        steps.mul_(inside_view(evaluator, position, storage))
    return torch.addcmul(values, values, steps), torch.addcmul(values, values, steps, value=-1.0)


def inside_view(evaluator: Evaluator, position: int, storage: torch.Tensor) -> torch.Tensor:
    """Which elements of an argument's storage its view covers."""
    covered = torch.zeros(storage.shape, dtype=torch.bool, device=storage.device)
    operators.view_of(covered, evaluator.recipes[position]).fill_(True)
    return covered


def _coin_flips(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Random booleans; eight from each drawn integer, one per byte."""
    words = torch.empty(like.numel() // 8 + 1, dtype=torch.int64, device=like.device)
    words.random_(-(1 << 63), None, generator=generator)
    return (words.view(torch.int8)[: like.numel()] < 0).reshape(like.shape)


def _add_squared_slope(
    total: torch.Tensor, ahead: torch.Tensor | None, exact: torch.Tensor, behind: torch.Tensor | None, weight: float
) -> None:
    """Where the two one-sided differences do not mirror each other there is a jump, and nothing is added."""
    if ahead is None or behind is None or not ahead.shape == behind.shape == exact.shape:
        return
    flat_total, a, e, b = (tensor.reshape(-1) for tensor in (total, ahead, exact, behind))
    for piece in pieces(e.numel(), e.device):
        odd = (a[piece] - b[piece]).abs()
        even = (a[piece] - e[piece]).add_(b[piece]).sub_(e[piece]).abs()
        slope = (odd * (even <= 0.5 * odd)).mul_(0.5 / STEP).nan_to_num_(nan=0.0, posinf=0.0)
        flat_total[piece].addcmul_(slope, slope, value=weight)


def _views(evaluator: Evaluator, storages: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [_view(evaluator, position, storage) for position, storage in enumerate(storages)]


def _view(evaluator: Evaluator, position: int, storage: torch.Tensor) -> torch.Tensor:
    return batched_view(storage.unsqueeze(0), evaluator.recipes[position])[0]


def _widened(storage: torch.Tensor) -> torch.Tensor:
    """A private copy; floats as float64."""
    return storage.to(wide_dtype(storage.dtype) if is_continuous(storage.dtype) else storage.dtype, copy=True)
