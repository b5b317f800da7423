"""Check of random results: outputs and inputs of a call fit together element by element, as dropout's output and mask.

Each result alone may be drawn as torch draws it, and still a mask may not be the one that was applied. So in each
examined call the results and inputs of one shape are examined together, in secret places. For each element it is noted
which of them are negative, zero and positive, and which of each two is larger. It is also noted whether one is the
product of two others, times the factor that torch's draws of the first call show.

Every combination is a cell. Over all calls of a trial, the elements in each cell are counted, of torch's draws and of
the candidate's. A cell that stays empty in all of torch's draws is something that the operator rules out. Example: an
element that the mask keeps and that is zero, though the input is not.

Probability of a false alarm: let the candidate have had ``m`` elements and torch ``n``, and let both fall into a cell
equally often. Then all ``k`` elements of the cell are the candidate's with a probability of ``(m / (m + n)) ** k``.
That must be less than exp(-EXPONENT), divided by the number of calls and cells. Elements that change together count
as one. A class that torch hardly draws at all shows nothing about its combinations.

Allowances: numbers that differ by some roundings count as equal, and subnormal ones as zero. NaN and infinities are
left out. A generator of 2**20 values may meet a limit that torch's hardly ever does.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch

from torchstone.judging.stochastic.duplicates_in_rows import LEAST_GRID
from torchstone.judging.stochastic.secret_places import secret_places
from torchstone.judging.tail_bound import unlikelihood

EXPONENT = 30.0
"""A cell of the n-th call is filled by chance with a probability of less than exp(-EXPONENT) / n / cells."""
_TOGETHER = 4
"""Tensors of one shape that are looked at: each makes three times as many cells."""
_LEAST_SEEN = 40
"""Least number of elements of torch's draws with a sign of a result, before its combinations are judged."""
_ROUNDINGS = 8.0
_AT_A_LIMIT = 4.0 / LEAST_GRID
"""Share of elements in which an honest generator may give an extreme value that torch's draws did not show."""
_FIRST = 4
_LOOKED_AT, _LOOKED_AT_FIRST = 1 << 12, 1 << 13
"""Elements of a call; more where a call is among the first."""
_COUNTED = 1 << 16
"""Elements of torch's draws of one call."""
_SIGNS = ("negative", "zero", "positive")
_ORDERS = ("smaller than", "equal to", "larger than")


class Relations:
    """The results and inputs of one case, call after call."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, ...], _Group] = {}
        self._calls = 0

    def misfit(
        self, own: dict[str, torch.Tensor], got: dict[str, torch.Tensor], given: dict[str, torch.Tensor], widened: float
    ) -> tuple[str, str] | None:
        """A result, and a combination of values with other tensors that never occurs in torch's draws; None: no such.

        ``own``: torch's draws by name, ``(draws, *shape)``, ``got``: the candidate's, ``given``: inputs that nobody
        writes to. ``widened``: the root of how many elements change together.
        """
        self._calls += 1
        for names in _of_one_shape(got, given):
            rows = min(len(own[name]) for name in names if name in own)
            elements = got[names[0]].numel()
            most = _LOOKED_AT_FIRST if self._calls <= _FIRST else _LOOKED_AT
            places = secret_places(elements, most).to(got[names[0]].device)
            rows = max(1, min(rows, _COUNTED // len(places)))
            torchs = [_numbers(own[name][:rows] if name in own else given[name][None], places) for name in names]
            theirs = [_numbers((got if name in got else given)[name][None], places) for name in names]
            roundings = [_rounding(got[name] if name in got else given[name]) for name in names]
            group = self._groups.setdefault(names, _Group(names, sum(name in got for name in names)))
            group.add([each.expand(rows, -1) for each in torchs], theirs, roundings)
            text = group.misfit(widened * widened, EXPONENT + math.log(self._calls))
            if text is not None:
                return names[0], text
        return None


class _Group:
    """Tensors of one shape: results first, then inputs."""

    def __init__(self, names: Sequence[str], results: int) -> None:
        self._names, self._results = names, results
        everything = range(len(names))
        compared: list[tuple[int, ...]] = [pair for pair in itertools.combinations(everything, 2) if pair[0] < results]
        compared += [
            (one, *others)
            for one in range(results)
            for others in itertools.combinations([each for each in everything if each != one], 2)
        ]
        self._compared = compared
        """One with another, and one with the product of two others."""
        self._factors: list[float] = []
        shape = (len(compared), *(3,) * len(names), 3)
        """Comparison, sign of each tensor, which is larger."""
        self._torchs, self._theirs = (torch.zeros(shape, dtype=torch.float64) for _ in range(2))

    def add(self, own: list[torch.Tensor], got: list[torch.Tensor], roundings: list[float]) -> None:
        if not self._factors:
            self._factors = [
                _factor(own[one], _product(own, others)) if len(others) > 1 else 1.0 for one, *others in self._compared
            ]
        self._torchs += self._counts(own, roundings)
        self._theirs += self._counts(got, roundings)

    def _counts(self, values: list[torch.Tensor], roundings: list[float]) -> torch.Tensor:
        finite = torch.stack([each.isfinite() for each in values]).all(dim=0)
        values = [each[finite] for each in values]
        signs = torch.zeros_like(values[0], dtype=torch.int64)
        for each in values:
            signs = 3 * signs + _class_of(each, torch.zeros_like(each))
        shape, tables = self._torchs.shape[1:], []
        for (one, *others), factor in zip(self._compared, self._factors, strict=True):
            other = factor * _product(values, others)
            room = max(roundings[each] for each in (one, *others)) * torch.maximum(values[one].abs(), other.abs())
            codes = 3 * signs + _class_of(values[one] - other, room)
            tables.append(torch.bincount(codes, minlength=math.prod(shape)).view(shape))
        return torch.stack(tables).to("cpu", torch.float64)

    def misfit(self, at_once: float, exponent: float) -> str | None:
        """Of the cells that torch leaves empty, the one that holds most."""
        elements, torchs = float(self._theirs[0].sum()), float(self._torchs[0].sum())
        ruled_out = torch.where((self._torchs == 0) & self._may_be_told(at_once), self._theirs, 0.0)
        most = float(ruled_out.amax()) / at_once
        if most == 0.0:
            return None
        odds = most * math.log((elements + torchs) / elements) - math.log(ruled_out.numel())
        if odds <= exponent or unlikelihood(most, _AT_A_LIMIT * elements / at_once) <= exponent:
            return None
        where = [int(index) for index in torch.unravel_index(ruled_out.argmax(), ruled_out.shape)]
        found = f"in {int(ruled_out.amax())} of {int(elements)} elements {self._cell(where)}"
        return f"{found}; in none of torch's {int(torchs)}"

    def _cell(self, where: Sequence[int]) -> str:
        """The cell in words. The comparison is left out if the signs alone never occur in torch's draws."""
        which, *signs, order = where
        text = ", ".join(f"{name} is {_SIGNS[sign]}" for name, sign in zip(self._names, signs, strict=True))
        if not self._torchs[tuple(where[:-1])].any():
            return text
        one, *others = self._compared[which]
        factor = "" if len(others) == 1 else f"{self._factors[which]:.6g} times "
        return (
            f"{text}, and {self._names[one]} {_ORDERS[order]} {factor}{' times '.join(self._names[o] for o in others)}"
        )

    def _may_be_told(self, at_once: float) -> torch.Tensor:
        """Cells of classes that torch draws often enough, of each result by itself."""
        told = torch.ones_like(self._torchs, dtype=torch.bool)
        for place in range(self._results):
            others = [dim for dim in range(1, self._torchs.dim()) if dim != 1 + place]
            seen = self._torchs[:1].sum(dim=others, keepdim=True)
            told &= seen >= _LEAST_SEEN * at_once
        return told


def _of_one_shape(got: dict[str, torch.Tensor], given: dict[str, torch.Tensor]) -> list[tuple[str, ...]]:
    """Names of tensors that belong together, results first; at least two, and a result among them."""
    groups: dict[torch.Size, list[str]] = {}
    for name, tensor in got.items():
        if tensor.numel() and not tensor.is_complex():
            groups.setdefault(tensor.shape, []).append(name)
    for name, tensor in given.items():
        if tensor.shape in groups and not tensor.is_complex():
            groups[tensor.shape].append(name)
    return [tuple(names[:_TOGETHER]) for names in groups.values() if len(names) > 1]


def _product(values: Sequence[torch.Tensor], which: Sequence[int]) -> torch.Tensor:
    return values[which[0]] if len(which) == 1 else values[which[0]] * values[which[1]]


def _factor(one: torch.Tensor, product: torch.Tensor) -> float:
    """What a product is multiplied with, if it is: dropout's scale."""
    ratios = (one / product)[(product != 0) & (one != 0)]
    ratios = ratios[ratios.isfinite()]
    return float(ratios.median()) if ratios.numel() else 1.0


def _numbers(rows: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """``(rows, places)`` in float64. What is less than normal counts as zero: many kernels flush it."""
    numbers = rows.reshape(len(rows), -1)[:, places]
    least = torch.finfo(rows.dtype).tiny if rows.is_floating_point() else 0.0
    numbers = numbers.to(torch.float64)
    return torch.where(numbers.abs() < least, 0.0, numbers)


def _rounding(tensor: torch.Tensor) -> float:
    return _ROUNDINGS * torch.finfo(tensor.dtype).eps if tensor.is_floating_point() else 0.0


def _class_of(values: torch.Tensor, room: torch.Tensor) -> torch.Tensor:
    """0, 1 or 2: negative, zero within ``room``, positive."""
    return 1 + (values > room).to(torch.int64) - (values < -room).to(torch.int64)
