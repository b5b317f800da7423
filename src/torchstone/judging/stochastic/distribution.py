"""Checks that a random result is drawn from the same distribution as torch's, as it cannot equal torch's.

A result is compared with several draws of torch's own on the same inputs. Six numbers of the result must not stand
out among those of torch's draws. The values of all elements together must pass a two-sample Kolmogorov-Smirnov test
against torch's. The first four numbers use ranks among torch's values instead of values, so that one draw from a
heavy tail (cauchy) does not decide.

mean, deviation     of all elements
follows             how strongly elements follow the mean of torch's draws at their place (bernoulli's probabilities)
neighbours          the product of neighbouring elements: a draw repeated along the result stands out
unseen              the share of elements with a value that none of torch's draws has there: dropout's wrong scale
repeated            the share of elements equal to those of the call before: a draw that is kept stands out

A number stands out if it is off by more than :data:`DEVIATIONS` standard deviations of torch's, plus an allowance. The
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
DRAWN_ELEMENTS = 1 << 22
DEVIATIONS = 12.0
SINGLES = 3.0
KOLMOGOROV_ALPHA = 1e-13
"""Significance of the Kolmogorov-Smirnov test: a kernel may be judged on ten thousand calls."""
_COMPARED = 9
"""Draws of torch's that are compared with one another."""
_LARGEST_USUAL = 1.6
"""Kolmogorov-Smirnov distance of independent draws times the root of their size: exceeded with probability 0.01."""
_SORTED_ELEMENTS = 1 << 16
_LOOKED_AT = 1 << 14
"""Elements of a larger result on which the six numbers are computed. Its support is judged on all elements."""
_RANKED_AMONG = 1 << 13
_RUN = 256
_ROUNDED = 2.0
"""Units of the dtype by which values may differ and still count as the same but for rounding."""
_COMMON = 3
"""How often a value must occur in torch's draws to count as a common one."""
_CLUSTERED = 1.5
"""Margin on how many elements change together."""
_UNEVEN = 3.0
"""From this many times the variance of independent elements on, elements count as changing together."""
_NOT_FINITE = "not all values are finite, as all of torch's are"


@dataclass(frozen=True, eq=False)
class ReferenceDraws:
    """torch's own draws of one result of one call, and what the candidate drew in the call before."""

    operator: str
    """Base name."""
    drawn: torch.Tensor
    """``(draws, *shape)``."""
    before: torch.Tensor | None
    """The candidate's result of an earlier call; None: there was none."""
    widened: float = 1.0
    """By how much the Kolmogorov-Smirnov bound is."""


def count_for(elements: int) -> int:
    """How many draws of torch's are taken."""
    return max(MIN_DRAWS, min(MAX_DRAWS, DRAWN_ELEMENTS // max(1, elements)))


def misfit(draws: ReferenceDraws, got: torch.Tensor) -> str | None:
    """What is wrong with a result of the right shape and dtype; None: nothing was found."""
    own, result = real_rows(draws.drawn), real_rows(got.unsqueeze(0))[0]
    outside = _outside_support(draws.operator, own, result)
    if outside is not None or _are_few(result, draws.widened) or _are_one(own, own[0, 0]):
        return outside
    before = (
        None if draws.before is None or draws.before.shape != got.shape else real_rows(draws.before.unsqueeze(0))[0]
    )
    places = _some_places(result.numel(), result.device)
    room = _room(result.dtype)

    def found_in(result: torch.Tensor) -> str | None:
        earlier = None if before is None else before[places].to(torch.float64)
        return _standing_out(own_here, result[places], earlier, room) or kolmogorov_misfit(
            all_own, result, draws.widened
        )

    own_here = own[:, places].to(torch.float64)
    all_own = _sample(own.reshape(-1)).to(torch.float64)
    result = result.to(torch.float64)
    # Rounding as torch does takes as long again, so it is tried only if something seems wrong.
    return found_in(result) and found_in(_as_torch_rounds(all_own, result, room))


def _standing_out(own: torch.Tensor, result: torch.Tensor, before: torch.Tensor | None, room: float) -> str | None:
    ranking = Ranking(_sample(own.reshape(-1), _RANKED_AMONG))
    ranks = ranking.ranks(own), ranking.ranks(result)
    numbers, owns = _numbers(own, result, before, *ranks, room)
    allowed = DEVIATIONS * owns.std(dim=1) + SINGLES * _at_once(own) * _one_element(ranks[0])
    off = numbers - owns.mean(dim=1)
    off[:-1] = off[:-1].abs()
    for text, number, torchs, much, bound in zip(_NAMES, numbers, owns.mean(dim=1), off, allowed, strict=True):
        if much > bound:
            around = f"{own.shape[0]} draws of torch's lie around {float(torchs):.4g}"
            return f"{text} is {float(number):.4g}; {around}, bound {float(bound):.3g} from there"
    return None


def _some_places(elements: int, device: torch.device) -> torch.Tensor:
    """Runs of neighbouring elements at secret places, or all elements of a small result."""
    if elements <= _LOOKED_AT:
        return torch.arange(elements, device=device)
    source = torch.Generator().manual_seed(secrets.randbits(63))
    starts = torch.randint(0, elements - _RUN + 1, (_LOOKED_AT // _RUN, 1), generator=source)
    return (starts + torch.arange(_RUN)).flatten().to(device)


def quick_misfit(operator: str, own: torch.Tensor, got: torch.Tensor, widened: float = 1.0) -> str | None:
    """Compare with a single draw of torch's, for calls that are not judged in full."""
    drawn, result = _flat(own.unsqueeze(0))[0], _flat(got.unsqueeze(0))[0]
    if _not_finite(operator, drawn, result):
        return _NOT_FINITE
    if _are_few(result, widened):
        return None
    found = kolmogorov_misfit(drawn, result, widened)
    return found and kolmogorov_misfit(drawn, _as_torch_rounds(drawn.unsqueeze(0), result, _room(got.dtype)), widened)


def _room(dtype: torch.dtype) -> float:
    """How far apart two values may be, relatively, that differ by how they were rounded."""
    return _ROUNDED * torch.finfo(dtype).eps if dtype.is_floating_point or dtype.is_complex else 0.0


def _as_torch_rounds(own: torch.Tensor, result: torch.Tensor, room: float) -> torch.Tensor:
    """The result, with values that are nearly one of torch's common values replaced by that one.

    Dropout may divide what it keeps by a number or multiply it with the inverse; both are right.
    """
    flat = in_order(_sample(own.reshape(-1)))
    common = torch.unique_consecutive(flat[_COMMON - 1 :][flat[_COMMON - 1 :] == flat[: 1 - _COMMON]])
    if not room or not common.numel():
        return result
    above = torch.searchsorted(common, result.contiguous()).clamp(max=common.numel() - 1)
    either = common[torch.stack([above, (above - 1).clamp(min=0)])]
    away = (either - result).abs()
    found = torch.where(away[0] <= away[1], either[0], either[1])
    return torch.where(away.amin(dim=0) <= room * found.abs(), found, result)


def widening(drawn: torch.Tensor) -> float:
    """How much farther apart torch's own draws are than those of independent elements: attention drops whole rows."""
    rows = real_rows(drawn)
    if rows.shape[1] < FEW_RANDOM_ELEMENTS:
        return 1.0
    found = [_kolmogorov(one, other) for one, other in itertools.pairwise(rows[:_COMPARED])]
    together = _at_once(rows[:, secret_places(rows.shape[1], _LOOKED_AT).to(rows.device)])
    return max([math.sqrt(together), *(distance * math.sqrt(size) / _LARGEST_USUAL for distance, size in found)])


def kolmogorov_misfit(own: torch.Tensor, result: torch.Tensor, widened: float = 1.0) -> str | None:
    """The two-sample test on samples of both."""
    distance, size = _kolmogorov(own, result)
    allowed = widened * math.sqrt(-0.5 * math.log(KOLMOGOROV_ALPHA / 2.0) / size)
    if distance <= allowed:
        return None
    return (
        "the values are distributed otherwise than torch's: "
        f"Kolmogorov-Smirnov distance {distance:.3g}, bound {allowed:.3g}"
    )


def _are_few(result: torch.Tensor, widened: float) -> bool:
    return result.numel() < FEW_RANDOM_ELEMENTS * widened * widened


def _kolmogorov(own: torch.Tensor, result: torch.Tensor) -> tuple[float, float]:
    """The distance, and the number of elements that it counts for."""
    one, other = (in_order(_sample(values).to(torch.float64)) for values in (own, result))
    return largest_gap(one, other), one.numel() * other.numel() / (one.numel() + other.numel())


_NAMES = (
    "the mean rank of the values",
    "the deviation of the ranks of the values",
    "how closely the values follow their inputs",
    "the mean product of neighbouring values",
    "the share of values that torch never draws there",
    "the share of values that repeat the call before",
)


def _numbers(
    own: torch.Tensor, result: torch.Tensor, before: torch.Tensor | None, z: torch.Tensor, y: torch.Tensor, room: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The numbers of a result, and ``(numbers, draws)`` of torch's, each draw seen against the others.

    ``z`` and ``y`` are the ranks of torch's values and of the result's.
    """
    centre, scale = z.mean(), z.std()
    z, y = (z - centre) / scale, (y - centre) / scale
    place = z.mean(dim=0)
    others = (place * z.shape[0] - z) / (z.shape[0] - 1)
    owns = torch.stack([
        *_moments(z), (z * others).mean(dim=1), _neighbours(z), _unseen_of_each(own, room), _equal_to_next(own),
    ])  # fmt: skip
    repeated = owns[-1].mean() if before is None else (result == before).double().mean()
    drawn = own[1:]  # as many as each of torch's is compared with
    unseen = ((drawn != result) & ((drawn - result).abs() > room * drawn.abs())).all(dim=0).double().mean()
    mean, deviation = _moments(y.unsqueeze(0))
    numbers = [mean[0], deviation[0], (y * place).mean(), _neighbours(y.unsqueeze(0))[0], unseen, repeated]
    return torch.stack(numbers), owns


def _moments(z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return z.mean(dim=1), z.std(dim=1)


def _neighbours(z: torch.Tensor) -> torch.Tensor:
    return (z[:, 1:] * z[:, :-1]).mean(dim=1)


def _unseen_of_each(own: torch.Tensor, room: float) -> torch.Tensor:
    """For each draw, the share of elements with a value that no other draw has there, but for rounding."""
    ordered, order = own.sort(dim=0)
    same = (ordered[1:] == ordered[:-1]) | (ordered[1:] - ordered[:-1] <= room * ordered[1:].abs())
    edge = torch.zeros_like(same[:1])
    alone = ~(torch.cat([same, edge]) | torch.cat([edge, same]))
    return torch.zeros_like(alone).scatter(0, order, alone).double().mean(dim=1)


def _equal_to_next(own: torch.Tensor) -> torch.Tensor:
    return (own == own.roll(1, dims=0)).double().mean(dim=1)


def _one_element(own: torch.Tensor) -> torch.Tensor:
    """The effect of one element at the far end of the range on each of the six numbers."""
    single = torch.tensor(1.0 / own.shape[1], dtype=own.dtype, device=own.device)
    width = (own.amax() - own.amin()) / own.std()
    return torch.stack([width * single, width * single, width * single, width * width * single, single, single])


def _at_once(own: torch.Tensor) -> float:
    """How many elements change together from draw to draw, by the variance of their number: attention drops whole
    rows.
    """
    same = (own[1:] == own[:-1]).double()
    share = same.mean()
    if_alone = (share * (1.0 - share) * own.shape[1]).clamp(min=1.0)
    times = float(same.sum(dim=1).var() / if_alone) if len(same) > 1 else 1.0
    return _CLUSTERED * times if times > _UNEVEN else 1.0


def _outside_support(operator: str, own: torch.Tensor, result: torch.Tensor) -> str | None:
    if not own.numel():
        return None
    if _not_finite(operator, own, result):
        return _NOT_FINITE
    if operators.traits(operator).draws_unit_interval and not bool(((result >= 0) & (result < 1)).all()):
        return f"values lie between {float(result.min()):.9g} and {float(result.max()):.9g}, outside [0, 1)"
    low, high = own.amin(), own.amax()
    two_valued = low < high and _are_one(own, low, high)
    if two_valued and own.numel() >= 256 and not bool(((result == low) | (result == high)).all()):
        return f"values other than torch's two, {float(low):g} and {float(high):g}, occur"
    return None


def _are_one(values: torch.Tensor, *of: torch.Tensor) -> bool:
    """Whether each value is one of these. Of many, some are tested first, which mostly suffices."""

    def all_are(some: torch.Tensor) -> bool:
        same = some == of[0]
        for other in of[1:]:
            same |= some == other
        return bool(same.all())

    return all_are(values[:, :_LOOKED_AT]) and (values.shape[1] <= _LOOKED_AT or all_are(values))


def _not_finite(operator: str, own: torch.Tensor, result: torch.Tensor) -> bool:
    """Whether a result has NaN or infinities and torch's draws do not. A heavy tail (cauchy) may be infinite, not
    NaN.
    """
    if operators.traits(operator).has_heavy_tails:
        return bool(result.isnan().any()) and not bool(own.isnan().any())
    return not bool(torch.isfinite(result).all()) and bool(torch.isfinite(own).all())


def _flat(values: torch.Tensor) -> torch.Tensor:
    """``(rows, elements)`` in float64."""
    return real_rows(values).to(torch.float64)


def _sample(values: torch.Tensor, most: int = _SORTED_ELEMENTS) -> torch.Tensor:
    """Elements in secret places."""
    return values if values.numel() <= most else values[secret_places(values.numel(), most).to(values.device)]
