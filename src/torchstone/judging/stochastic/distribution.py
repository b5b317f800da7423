"""Check of random results: a result is drawn from the same distribution as torch's draws.

A result is compared with several draws of torch's own on the same inputs. Six statistics of the result must lie near
those of torch's draws. The values of all elements together must pass a two-sample Kolmogorov-Smirnov test against
torch's. The first four statistics use ranks among torch's values instead of values, so that one draw from a heavy tail
(cauchy) does not decide.

mean, deviation     mean and standard deviation of all elements
follows             how strongly elements follow the mean of torch's draws at their position (bernoulli's probabilities)
neighbours          the mean product of neighbouring elements: finds a draw that is repeated along the result
unseen              the share of elements with a value that no draw of torch's has there: finds a wrong dropout scale
repeated            the share of elements equal to those of the previous call: finds a stored draw

A statistic fails if it is off by more than :data:`DEVIATIONS` standard deviations of torch's, plus an allowance. The
allowance is the effect of :data:`SINGLES` elements at the far end of the range, or of as many groups of elements that
change together. It keeps rare values (a bernoulli of 0.001) from deciding. With at least 24 draws of normal numbers a
false alarm is rarer than once in 5e9 calls (Student), as computed, not measured. Repeating too little is allowed.

The Kolmogorov-Smirnov test is at 1e-13. It is conservative where elements have different distributions or ties. Where
elements depend on one another, torch's own draws lie farther apart, and the bound is widened by as much.

What this does not detect:

- small differences, which show over many calls: :mod:`torchstone.judging.stochastic.value_rates`;
- dependence between distant elements: :mod:`torchstone.judging.stochastic.dependence`;
- dependence between outputs (a mask other than the applied one):
  :mod:`torchstone.judging.stochastic.result_relations`;
- dependence on a generator's state.
"""

from __future__ import annotations

import itertools
import math
import secrets
from dataclasses import dataclass

import torch

from torchstone import operators
from torchstone.calls.random_or_undefined_results import FEW_RANDOM_ELEMENTS
from torchstone.judging.stochastic.rank_statistics import Ranking, in_order, largest_gap
from torchstone.judging.stochastic.results_as_numbers import real_rows
from torchstone.judging.stochastic.secret_places import secret_places

MIN_DRAWS, MAX_DRAWS = 24, 32
"""Least and most draws of torch's that a result is compared with."""
DRAWN_ELEMENTS = 1 << 22
"""Most elements of all draws of torch's together, as far as MIN_DRAWS allows."""
DEVIATIONS = 12.0
"""Standard deviations from torch's mean from which a statistic fails."""
SINGLES = 3.0
"""Elements at the far end of the range, or groups that change together, whose effect is always allowed."""
KOLMOGOROV_ALPHA = 1e-13
"""Significance of the Kolmogorov-Smirnov test: a kernel may be judged on ten thousand calls."""
_MOST_COMPARED_DRAWS = 9
"""Draws of torch's that are compared with one another to measure their spread."""
_USUAL_DISTANCE = 1.6
"""Kolmogorov-Smirnov distance of independent draws times the root of their size: exceeded with probability 0.01."""
_MOST_SORTED_ELEMENTS = 1 << 16
"""Most elements that are sorted for a test; larger sets are sampled."""
_MOST_EXAMINED_ELEMENTS = 1 << 14
"""Elements of a larger result on which the six statistics are computed. Its support is judged on all elements."""
_MOST_RANKED_VALUES = 1 << 13
"""Most of torch's values among which ranks are looked up."""
_RUN_ELEMENTS = 256
"""Neighbouring elements that are examined together, so that products of neighbours can be computed."""
_ROUNDING_UNITS = 2.0
"""Units of the dtype's epsilon by which values may differ and still count as equal but for rounding."""
_COMMON_VALUE_COUNT = 3
"""How often a value must occur in torch's draws to count as a common one."""
_GROUP_SIZE_MARGIN = 1.5
"""Factor on the measured number of elements that change together."""
_LEAST_VARIANCE_RATIO = 3.0
"""From this many times the variance of independent elements on, elements count as changing together."""
_NOT_FINITE = "not all values are finite; all of torch's values are"


@dataclass(frozen=True, eq=False)
class ReferenceDraws:
    """torch's own draws of one result of one call, and the candidate's previous result."""

    operator: str
    """The operator's name."""
    drawn: torch.Tensor
    """``(draws, *shape)``."""
    before: torch.Tensor | None
    """The candidate's result of an earlier call; None: there was none."""
    widened: float = 1.0
    """Factor on the Kolmogorov-Smirnov bound."""


def count_for(elements: int) -> int:
    """How many draws of torch's to take for a result of this many elements."""
    return max(MIN_DRAWS, min(MAX_DRAWS, DRAWN_ELEMENTS // max(1, elements)))


def mismatch_text(draws: ReferenceDraws, got: torch.Tensor) -> str | None:
    """Judge a result of the right shape and dtype: return a message, or None if nothing is wrong."""
    own, result = real_rows(draws.drawn), real_rows(got.unsqueeze(0))[0]
    outside = _outside_support(draws.operator, own, result)
    if outside is not None or _is_too_small(result, draws.widened) or _are_all_among(own, own[0, 0]):
        return outside
    before = (
        None if draws.before is None or draws.before.shape != got.shape else real_rows(draws.before.unsqueeze(0))[0]
    )
    places = _secret_runs(result.numel(), result.device)
    tolerance = _rounding_tolerance(result.dtype)

    def found_in(result: torch.Tensor) -> str | None:
        earlier = None if before is None else before[places].to(torch.float64)
        return _statistics_mismatch_text(own_here, result[places], earlier, tolerance) or kolmogorov_mismatch_text(
            all_own, result, draws.widened
        )

    own_here = own[:, places].to(torch.float64)
    all_own = _sample(own.reshape(-1)).to(torch.float64)
    result = result.to(torch.float64)
    # Rounding as torch does doubles the time, so it is tried only if something seems wrong.
    return found_in(result) and found_in(_as_torch_rounds(all_own, result, tolerance))


def _statistics_mismatch_text(
    own: torch.Tensor, result: torch.Tensor, before: torch.Tensor | None, tolerance: float
) -> str | None:
    """Describe the first of the six statistics that fails; None if none does. ``before``: the previous result."""
    ranking = Ranking(_sample(own.reshape(-1), _MOST_RANKED_VALUES))
    ranks = ranking.ranks(own), ranking.ranks(result)
    numbers, owns = _statistics(own, result, before, *ranks, tolerance)
    allowed = DEVIATIONS * owns.std(dim=1) + SINGLES * _group_size(own) * _one_element(ranks[0])
    off = numbers - owns.mean(dim=1)
    off[:-1] = off[:-1].abs()
    for text, number, torchs, much, bound in zip(
        _STATISTIC_NAMES, numbers, owns.mean(dim=1), off, allowed, strict=True
    ):
        if much > bound:
            around = f"the mean of {own.shape[0]} draws of torch is {float(torchs):.4g}"
            return f"{text} is {float(number):.4g}; {around}, allowed difference {float(bound):.3g}"
    return None


def _secret_runs(elements: int, device: torch.device) -> torch.Tensor:
    """Indices of runs of neighbouring elements at secret positions, or of all elements of a small result."""
    if elements <= _MOST_EXAMINED_ELEMENTS:
        return torch.arange(elements, device=device)
    source = torch.Generator().manual_seed(secrets.randbits(63))
    starts = torch.randint(
        0, elements - _RUN_ELEMENTS + 1, (_MOST_EXAMINED_ELEMENTS // _RUN_ELEMENTS, 1), generator=source
    )
    return (starts + torch.arange(_RUN_ELEMENTS)).flatten().to(device)


def quick_mismatch_text(operator: str, own: torch.Tensor, got: torch.Tensor, widened: float = 1.0) -> str | None:
    """Compare a result with one draw of torch's (``own``), for calls that are not judged in full.

    Returns a message, or None if nothing is wrong.
    """
    drawn, result = _flat(own.unsqueeze(0))[0], _flat(got.unsqueeze(0))[0]
    if _not_finite(operator, drawn, result):
        return _NOT_FINITE
    if _is_too_small(result, widened):
        return None
    found = kolmogorov_mismatch_text(drawn, result, widened)
    return found and kolmogorov_mismatch_text(
        drawn, _as_torch_rounds(drawn.unsqueeze(0), result, _rounding_tolerance(got.dtype)), widened
    )


def _rounding_tolerance(dtype: torch.dtype) -> float:
    """The relative difference of two values up to which they count as equal but for rounding."""
    return _ROUNDING_UNITS * torch.finfo(dtype).eps if dtype.is_floating_point or dtype.is_complex else 0.0


def _as_torch_rounds(own: torch.Tensor, result: torch.Tensor, tolerance: float) -> torch.Tensor:
    """The result. Each value that differs from one of torch's only by a rounding error is replaced by torch's.

    Only values that occur several times in ``own``, torch's draws, are used. Dropout may divide the kept elements by a
    number, or multiply them by its inverse. Both are right, but round differently.
    """
    flat = in_order(_sample(own.reshape(-1)))
    common = torch.unique_consecutive(
        flat[_COMMON_VALUE_COUNT - 1 :][flat[_COMMON_VALUE_COUNT - 1 :] == flat[: 1 - _COMMON_VALUE_COUNT]]
    )
    if not tolerance or not common.numel():
        return result
    above = torch.searchsorted(common, result.contiguous()).clamp(max=common.numel() - 1)
    either = common[torch.stack([above, (above - 1).clamp(min=0)])]
    away = (either - result).abs()
    found = torch.where(away[0] <= away[1], either[0], either[1])
    return torch.where(away.amin(dim=0) <= tolerance * found.abs(), found, result)


def widening(drawn: torch.Tensor) -> float:
    """How much farther apart torch's own draws are than draws of independent elements.

    Attention, for example, drops whole rows.
    """
    rows = real_rows(drawn)
    if rows.shape[1] < FEW_RANDOM_ELEMENTS:
        return 1.0
    found = [_kolmogorov(one, other) for one, other in itertools.pairwise(rows[:_MOST_COMPARED_DRAWS])]
    together = _group_size(rows[:, secret_places(rows.shape[1], _MOST_EXAMINED_ELEMENTS).to(rows.device)])
    return max([math.sqrt(together), *(distance * math.sqrt(size) / _USUAL_DISTANCE for distance, size in found)])


def kolmogorov_mismatch_text(own: torch.Tensor, result: torch.Tensor, widened: float = 1.0) -> str | None:
    """Return a message if the two-sample test, on samples of both, fails; else None."""
    distance, size = _kolmogorov(own, result)
    allowed = widened * math.sqrt(-0.5 * math.log(KOLMOGOROV_ALPHA / 2.0) / size)
    if distance <= allowed:
        return None
    return (
        "the values have another distribution than torch's: "
        f"Kolmogorov-Smirnov distance {distance:.3g}, bound {allowed:.3g}"
    )


def _is_too_small(result: torch.Tensor, widened: float) -> bool:
    """Whether a result has too few independent elements to judge their distribution."""
    return result.numel() < FEW_RANDOM_ELEMENTS * widened * widened


def _kolmogorov(own: torch.Tensor, result: torch.Tensor) -> tuple[float, float]:
    """The Kolmogorov-Smirnov distance, and the effective sample size ``n * m / (n + m)``."""
    one, other = (in_order(_sample(values).to(torch.float64)) for values in (own, result))
    return largest_gap(one, other), one.numel() * other.numel() / (one.numel() + other.numel())


_STATISTIC_NAMES = (
    "the mean rank of the values",
    "the standard deviation of the ranks of the values",
    "the correlation of the values with torch's mean at the same place",
    "the mean product of the ranks of adjacent values",
    "the share of values that torch never draws at the same place",
    "the share of values that are equal to those of the previous call",
)


def _statistics(
    own: torch.Tensor,
    result: torch.Tensor,
    before: torch.Tensor | None,
    z: torch.Tensor,
    y: torch.Tensor,
    tolerance: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The six statistics of a result, and ``(6, draws)`` of torch's draws, each draw compared with the others.

    ``z`` and ``y`` are the ranks of torch's values and of the result's.
    """
    centre, scale = z.mean(), z.std()
    z, y = (z - centre) / scale, (y - centre) / scale
    place = z.mean(dim=0)
    others = (place * z.shape[0] - z) / (z.shape[0] - 1)
    owns = torch.stack([
        *_moments(z), (z * others).mean(dim=1), _neighbours(z), _unseen_of_each(own, tolerance), _equal_to_next(own),
    ])  # fmt: skip
    repeated = owns[-1].mean() if before is None else (result == before).double().mean()
    drawn = own[1:]  # as many draws as each of torch's is compared with
    unseen = ((drawn != result) & ((drawn - result).abs() > tolerance * drawn.abs())).all(dim=0).double().mean()
    mean, deviation = _moments(y.unsqueeze(0))
    numbers = [mean[0], deviation[0], (y * place).mean(), _neighbours(y.unsqueeze(0))[0], unseen, repeated]
    return torch.stack(numbers), owns


def _moments(z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return z.mean(dim=1), z.std(dim=1)


def _neighbours(z: torch.Tensor) -> torch.Tensor:
    return (z[:, 1:] * z[:, :-1]).mean(dim=1)


def _unseen_of_each(own: torch.Tensor, tolerance: float) -> torch.Tensor:
    """For each draw, the share of elements with a value that, but for rounding, no other draw has there."""
    ordered, order = own.sort(dim=0)
    same = (ordered[1:] == ordered[:-1]) | (ordered[1:] - ordered[:-1] <= tolerance * ordered[1:].abs())
    edge = torch.zeros_like(same[:1])
    alone = ~(torch.cat([same, edge]) | torch.cat([edge, same]))
    return torch.zeros_like(alone).scatter(0, order, alone).double().mean(dim=1)


def _equal_to_next(own: torch.Tensor) -> torch.Tensor:
    return (own == own.roll(1, dims=0)).double().mean(dim=1)


def _one_element(own: torch.Tensor) -> torch.Tensor:
    """The effect of one element at the far end of the range on each of the six statistics."""
    single = torch.tensor(1.0 / own.shape[1], dtype=own.dtype, device=own.device)
    width = (own.amax() - own.amin()) / own.std()
    return torch.stack([width * single, width * single, width * single, width * width * single, single, single])


def _group_size(own: torch.Tensor) -> float:
    """How many elements change together from draw to draw, such as the rows that attention drops.

    Estimated from the variance of the number of elements that are equal in consecutive draws.
    """
    same = (own[1:] == own[:-1]).double()
    share = same.mean()
    if_alone = (share * (1.0 - share) * own.shape[1]).clamp(min=1.0)
    times = float(same.sum(dim=1).var() / if_alone) if len(same) > 1 else 1.0
    return _GROUP_SIZE_MARGIN * times if times > _LEAST_VARIANCE_RATIO else 1.0


def _outside_support(operator: str, own: torch.Tensor, result: torch.Tensor) -> str | None:
    """Return a message if the result has values that the operator never draws; else None."""
    if not own.numel():
        return None
    if _not_finite(operator, own, result):
        return _NOT_FINITE
    if operators.traits(operator).draws_unit_interval and not bool(((result >= 0) & (result < 1)).all()):
        return f"values lie between {float(result.min()):.9g} and {float(result.max()):.9g}, outside [0, 1)"
    low, high = own.amin(), own.amax()
    two_valued = low < high and _are_all_among(own, low, high)
    if two_valued and own.numel() >= 256 and not bool(((result == low) | (result == high)).all()):
        return f"values other than torch's two, {float(low):g} and {float(high):g}, occur"
    return None


def _are_all_among(values: torch.Tensor, *of: torch.Tensor) -> bool:
    """Whether each value is one of ``of``. Of many values some are tested first, which is mostly enough for False."""

    def all_are(some: torch.Tensor) -> bool:
        same = some == of[0]
        for other in of[1:]:
            same |= some == other
        return bool(same.all())

    return all_are(values[:, :_MOST_EXAMINED_ELEMENTS]) and (
        values.shape[1] <= _MOST_EXAMINED_ELEMENTS or all_are(values)
    )


def _not_finite(operator: str, own: torch.Tensor, result: torch.Tensor) -> bool:
    """Whether a result has NaN or infinities and torch's draws do not. Heavy tails (cauchy) may have infinities."""
    if operators.traits(operator).has_heavy_tails:
        return bool(result.isnan().any()) and not bool(own.isnan().any())
    return not bool(torch.isfinite(result).all()) and bool(torch.isfinite(own).all())


def _flat(values: torch.Tensor) -> torch.Tensor:
    """``(rows, elements)`` in float64."""
    return real_rows(values).to(torch.float64)


def _sample(values: torch.Tensor, most: int = _MOST_SORTED_ELEMENTS) -> torch.Tensor:
    """The values, or a sample of ``most`` of them at secret positions."""
    return values if values.numel() <= most else values[secret_places(values.numel(), most).to(values.device)]
