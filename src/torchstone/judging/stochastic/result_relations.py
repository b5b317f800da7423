"""Check of random results: outputs and inputs of a call fit together element by element, as dropout's output and mask.

Each result alone may be drawn as torch draws it, and still a mask may not be the one that was applied. So in each
examined call the results and inputs of one shape are examined together, at secret positions. Each element is classified
by the sign of each tensor and by which of two tensors is larger. A result is also compared with the product of two
other tensors, times the factor that torch's draws of the first call show.

Every combination of these classes is a cell. Over all calls of a trial, the elements in each cell are counted, of
torch's draws and of the candidate's. A cell that is empty in all of torch's draws is a combination that the operator
rules out. Example: an element that the mask keeps and that is zero, though the input is not.

Probability of a false alarm: let the candidate have had ``m`` elements and torch ``n``, and let both fall into a cell
equally often. Then all ``k`` elements of the cell are the candidate's with a probability of ``(m / (m + n)) ** k``.
That must be less than exp(-EXPONENT), divided by the number of calls and cells. Elements that change together count
as one. Combinations with a sign that torch's draws hardly have are not judged.

Allowances: numbers that differ by a few roundings count as equal, and subnormal ones as zero. NaN and infinities are
left out. A generator of 2**20 values may return an extreme value that torch's hardly ever returns.
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
"""A cell raises a false alarm in the n-th call with a probability of less than exp(-EXPONENT) / n / cells."""
_MOST_TENSORS = 4
"""Most tensors of one shape that are examined together: each one triples the number of cells."""
_LEAST_WITH_SIGN = 40
"""Least number of elements of torch's draws in which a result has a sign, before combinations with it are judged."""
_ALLOWED_ROUNDINGS = 8.0
"""Roundings of the dtype by which two numbers may differ and still count as equal."""
_EXTREME_VALUE_SHARE = 4.0 / LEAST_GRID
"""Share of elements in which an honest generator may give an extreme value that torch's draws did not show."""
_FIRST_CALLS = 4
"""Number of calls in which more elements are examined."""
_MOST_ELEMENTS, _MOST_ELEMENTS_FIRST = 1 << 12, 1 << 13
"""Most elements of a result that are examined in a call, and in one of the first calls."""
_MOST_REFERENCE_ELEMENTS = 1 << 16
"""Most elements of torch's draws that are counted in a call, all draws together."""
_SIGNS = ("negative", "zero", "positive")
_ORDERS = ("smaller than", "equal to", "larger than")


class Relations:
    """Compares results and inputs of one case with each other, adding up counts over its calls."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, ...], _Group] = {}
        self._calls = 0

    def mismatch_text(
        self, own: dict[str, torch.Tensor], got: dict[str, torch.Tensor], given: dict[str, torch.Tensor], widened: float
    ) -> tuple[str, str] | None:
        """Return a result's name and a combination of values that never occurs in torch's draws; None if there is none.

        ``own``: torch's draws by name, ``(draws, *shape)``. ``got``: the candidate's results. ``given``: arguments that
        are only read. ``widened``: the square root of how many elements change together.
        """
        self._calls += 1
        for names in _names_by_shape(got, given):
            rows = min(len(own[name]) for name in names if name in own)
            elements = got[names[0]].numel()
            most = _MOST_ELEMENTS_FIRST if self._calls <= _FIRST_CALLS else _MOST_ELEMENTS
            places = secret_places(elements, most).to(got[names[0]].device)
            rows = max(1, min(rows, _MOST_REFERENCE_ELEMENTS // len(places)))
            torchs = [_numbers(own[name][:rows] if name in own else given[name][None], places) for name in names]
            candidates = [_numbers((got if name in got else given)[name][None], places) for name in names]
            tolerances = [_tolerance(got[name] if name in got else given[name]) for name in names]
            group = self._groups.setdefault(names, _Group(names, sum(name in got for name in names)))
            group.add([each.expand(rows, -1) for each in torchs], candidates, tolerances)
            text = group.mismatch_text(widened * widened, EXPONENT + math.log(self._calls))
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
        """Index of a result, then indices of what it is compared with: a tensor, or the product of two."""
        self._factors: list[float] = []
        shape = (len(compared), *(3,) * len(names), 3)
        """Axes: comparison, sign of each tensor, whether the result is smaller, equal or larger."""
        self._torchs, self._candidates = (torch.zeros(shape, dtype=torch.float64) for _ in range(2))

    def add(self, own: list[torch.Tensor], got: list[torch.Tensor], tolerances: list[float]) -> None:
        if not self._factors:
            self._factors = [
                _factor(own[one], _product(own, others)) if len(others) > 1 else 1.0 for one, *others in self._compared
            ]
        self._torchs += self._counts(own, tolerances)
        self._candidates += self._counts(got, tolerances)

    def _counts(self, values: list[torch.Tensor], tolerances: list[float]) -> torch.Tensor:
        finite = torch.stack([each.isfinite() for each in values]).all(dim=0)
        values = [each[finite] for each in values]
        signs = torch.zeros_like(values[0], dtype=torch.int64)
        for each in values:
            signs = 3 * signs + _sign_class(each, torch.zeros_like(each))
        shape, tables = self._torchs.shape[1:], []
        for (one, *others), factor in zip(self._compared, self._factors, strict=True):
            other = factor * _product(values, others)
            allowed = max(tolerances[each] for each in (one, *others)) * torch.maximum(values[one].abs(), other.abs())
            codes = 3 * signs + _sign_class(values[one] - other, allowed)
            tables.append(torch.bincount(codes, minlength=math.prod(shape)).view(shape))
        return torch.stack(tables).to("cpu", torch.float64)

    def mismatch_text(self, group_size: float, exponent: float) -> str | None:
        """Describe the fullest cell that is empty in all of torch's draws; None if chance explains it.

        ``group_size``: how many elements change together.
        """
        elements, torchs = float(self._candidates[0].sum()), float(self._torchs[0].sum())
        ruled_out = torch.where((self._torchs == 0) & self._can_be_judged(group_size), self._candidates, 0.0)
        most = float(ruled_out.amax()) / group_size
        if most == 0.0:
            return None
        odds = most * math.log((elements + torchs) / elements) - math.log(ruled_out.numel())
        if odds <= exponent or unlikelihood(most, _EXTREME_VALUE_SHARE * elements / group_size) <= exponent:
            return None
        where = [int(index) for index in torch.unravel_index(ruled_out.argmax(), ruled_out.shape)]
        found = f"in {int(ruled_out.amax())} of {int(elements)} elements {self._cell(where)}"
        return f"{found}; in none of torch's {int(torchs)} elements"

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

    def _can_be_judged(self, group_size: float) -> torch.Tensor:
        """Whether each cell can be judged: torch's draws have the cell's sign of each result often enough."""
        judged = torch.ones_like(self._torchs, dtype=torch.bool)
        for place in range(self._results):
            others = [dim for dim in range(1, self._torchs.dim()) if dim != 1 + place]
            seen = self._torchs[:1].sum(dim=others, keepdim=True)
            judged &= seen >= _LEAST_WITH_SIGN * group_size
        return judged


def _names_by_shape(got: dict[str, torch.Tensor], given: dict[str, torch.Tensor]) -> list[tuple[str, ...]]:
    """Groups of names of tensors of one shape, results first: at least two names, one of them of a result."""
    groups: dict[torch.Size, list[str]] = {}
    for name, tensor in got.items():
        if tensor.numel() and not tensor.is_complex():
            groups.setdefault(tensor.shape, []).append(name)
    for name, tensor in given.items():
        if tensor.shape in groups and not tensor.is_complex():
            groups[tensor.shape].append(name)
    return [tuple(names[:_MOST_TENSORS]) for names in groups.values() if len(names) > 1]


def _product(values: Sequence[torch.Tensor], which: Sequence[int]) -> torch.Tensor:
    return values[which[0]] if len(which) == 1 else values[which[0]] * values[which[1]]


def _factor(one: torch.Tensor, product: torch.Tensor) -> float:
    """The median ratio of a result to a product, such as dropout's scale; 1 if there is no ratio."""
    ratios = (one / product)[(product != 0) & (one != 0)]
    ratios = ratios[ratios.isfinite()]
    return float(ratios.median()) if ratios.numel() else 1.0


def _numbers(rows: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """``(rows, places)`` in float64. Subnormal numbers become zero, because many kernels flush them."""
    numbers = rows.reshape(len(rows), -1)[:, places]
    least = torch.finfo(rows.dtype).tiny if rows.is_floating_point() else 0.0
    numbers = numbers.to(torch.float64)
    return torch.where(numbers.abs() < least, 0.0, numbers)


def _tolerance(tensor: torch.Tensor) -> float:
    """Relative difference up to which numbers of this dtype count as equal."""
    return _ALLOWED_ROUNDINGS * torch.finfo(tensor.dtype).eps if tensor.is_floating_point() else 0.0


def _sign_class(values: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
    """0, 1 or 2: negative, zero within ``allowed``, positive."""
    return 1 + (values > allowed).to(torch.int64) - (values < -allowed).to(torch.int64)
