"""Check of random results: values exceed, undercut or equal thresholds as often as torch's, over all calls of a kernel.

A rate of 0.094 instead of 0.1, or a tail that ends at three and a half deviations, is lost in the noise of one result.
So thresholds are taken from torch's own draws of the first call. They are the median, the quartiles and the values
that a tenth, a hundredth, down to a hundred thousandth of all values exceed or undercut, as far as torch's draws show
them. The most frequent value is another one, if it is a twentieth of all. For every call, the elements of the
candidate's and of torch's results beyond each threshold are counted, in secret places. The differences are added up.

Probability of a false alarm: given the inputs both counts have the same mean. Their variance is at most ``n p (1 -
p)`` for the mean chance ``p`` of all elements. Their differences are sums of bounded terms: Bernstein, with an
exponent that grows by the logarithm of the number of calls. So all calls of a trial and all thresholds together
refuse an honest kernel less than once in 1e9 trials. Elements that depend on one another make counts of torch's own
spread more. That is measured on all of its draws in calls judged in full, and allowed.

Allowances: rates need not be closer than :data:`RESOLUTION`, the resolution of 16 random bits. For attention 8 bits
suffice, as in torch's own kernels. The rarest tails need not be closer than by half. Values rounded to fewer bits
need not be closer than their rounding.
"""

from __future__ import annotations

import math
import secrets

import numpy as np
import torch

from torchstone import operators
from torchstone.judging.stochastic.rank_statistics import in_order
from torchstone.judging.stochastic.results_as_numbers import real_rows
from torchstone.judging.stochastic.secret_places import secret_places

RESOLUTION = 2.0**-17
"""Half a step of 16 random bits."""
ATTENTION_RESOLUTION = 2.0**-8
RARE_SLACK = 0.5
"""Share by which a rare event may be more or less frequent."""
EXPONENT = 24.0
"""A threshold of the n-th call is crossed by chance with a probability of less than exp(-EXPONENT) / n."""
_LEVELS = (0.5, 0.25, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
_TOLD_BY = 16
"""Elements of torch's that must lie beyond a threshold when it is chosen."""
_FREQUENT = 0.05
_SORTED = 1 << 20
_ALWAYS = 8
_LOOKED_AT, _LOOKED_AT_FIRST = 1 << 16, 1 << 19
"""Elements of a call that are counted; more where a call is among the first."""
_COUNTED = 1 << 22
"""Elements of torch's draws of one call, likewise."""


class Rates:
    """One result of one case, call after call."""

    def __init__(self, operator: str, own: torch.Tensor) -> None:
        """``own``: many draws of torch's of the first call, ``(draws, *shape)``."""
        rows = real_rows(own)
        self._thresholds = _Thresholds(rows)
        is_rounded = own.dtype.is_floating_point or own.dtype.is_complex
        coarse = ATTENTION_RESOLUTION if operators.traits(operator).attends else RESOLUTION
        rounding = torch.finfo(own.dtype).eps if is_rounded else 0.0
        self._resolution = self._thresholds.per_threshold(max(coarse, rounding), of_equal=coarse)
        nothing = torch.zeros(len(self._resolution), dtype=torch.float64)
        self._calls, self._elements = 0, 0
        self._off, self._variance, self._mean = nothing, nothing, nothing
        self._spread, self._usual_spread = nothing, nothing

    def misfit(self, own: torch.Tensor, got: torch.Tensor, widened: float = 1.0) -> str | None:
        """At which threshold the candidate's counts of all calls differ from torch's; None: at none.

        ``own``: torch's draws of this call. ``widened``: how much farther apart torch's draws are known to be than
        those of independent elements.
        """
        rows, result = real_rows(own), real_rows(got.unsqueeze(0))
        if not result.numel() or rows.shape[1] != result.shape[1] or not len(self._resolution):
            return None
        self._calls += 1
        part = _some(rows.shape[1], _LOOKED_AT_FIRST if self._calls <= _ALWAYS else _LOOKED_AT)
        rows = rows[: max(1, _COUNTED // (part.stop - part.start)), part]
        counts = self._thresholds.counts(torch.cat([result[:, part], rows]))
        self._add(counts[0], counts[1:], rows.shape[1])
        return self._text(self._allowed(widened * widened))

    def _add(self, got: torch.Tensor, own: torch.Tensor, elements: int) -> None:
        draws = len(own)
        share = (got + own.sum(dim=0)) / (elements * (draws + 1))
        variance = elements * share * (1.0 - share)
        self._elements += elements
        self._off = self._off + got - own.mean(dim=0)
        self._mean = self._mean + own.mean(dim=0)
        self._variance = self._variance + variance * (1.0 + 1.0 / draws)
        if draws > 2:
            self._spread = self._spread + own.var(dim=0) * (draws - 1)
            self._usual_spread = self._usual_spread + variance * (draws - 1)

    def _allowed(self, least_wide: float) -> torch.Tensor:
        wide = (self._spread / self._usual_spread.clamp(min=1e-9)).clamp(min=least_wide)
        exponent = EXPONENT + math.log(self._calls)
        by_chance = (2.0 * exponent * wide * self._variance).sqrt() + wide * exponent * (2.0 / 3.0)
        rare = torch.minimum(self._mean, self._elements - self._mean)
        return by_chance + torch.minimum(self._resolution * self._elements, RARE_SLACK * rare)

    def _text(self, allowed: torch.Tensor) -> str | None:
        beyond = self._off.abs() - allowed
        which = int(beyond.argmax())
        if beyond[which] <= 0.0:
            return None
        torchs = float(self._mean[which])
        return (
            f"values {self._thresholds.name(which)} are {torchs + float(self._off[which]):.7g} of {self._elements} in "
            f"{self._calls} calls; torch's own are {torchs:.7g}, bound {float(allowed[which]):.4g} from there"
        )


class _Thresholds:
    """The thresholds: values are counted that are above, below or equal to one."""

    def __init__(self, own: torch.Tensor) -> None:
        values = own.reshape(-1)
        ordered = in_order(values[secret_places(values.numel(), _SORTED).to(values.device)])
        levels = [level for level in _LEVELS if level * len(ordered) >= _TOLD_BY]
        ends = [min(len(ordered) - 1, round(level * len(ordered))) for level in levels]
        self._above = list(dict.fromkeys(ordered[len(ordered) - 1 - end].item() for end in ends))
        self._below = list(dict.fromkeys(ordered[end].item() for end in ends))
        distinct, counts = torch.unique_consecutive(ordered, return_counts=True)
        frequent = len(counts) and int(counts.amax()) >= max(_TOLD_BY, _FREQUENT * len(ordered))
        self._equal = [distinct[counts.argmax()].item()] if frequent else []

    def per_threshold(self, usual: float, of_equal: float) -> torch.Tensor:
        """A number for each."""
        many = len(self._above) + len(self._below)
        return torch.tensor([usual] * many + [of_equal] * len(self._equal), dtype=torch.float64)

    def counts(self, rows: torch.Tensor) -> torch.Tensor:
        """``(rows, thresholds)``, on the host. There numpy counts flags quicker; elsewhere sums of numbers are."""
        if rows.device.type == "cpu":
            return torch.tensor([self._counts_in(row) for row in rows], dtype=torch.float64)
        beyond = [rows > value for value in self._above] + [rows < value for value in self._below]
        beyond += [rows == value for value in self._equal]
        return torch.stack([each.to(torch.float32).sum(dim=1) for each in beyond], 1).to("cpu", torch.float64)

    def _counts_in(self, row: torch.Tensor) -> list[int]:
        values = (row.to(torch.float32) if row.dtype in (torch.bfloat16, torch.float16) else row).numpy()
        beyond = [values > value for value in self._above] + [values < value for value in self._below]
        return [int(np.count_nonzero(flags)) for flags in (*beyond, *(values == value for value in self._equal))]

    def name(self, which: int) -> str:
        names = [f"above {value:.6g}" for value in self._above] + [f"below {value:.6g}" for value in self._below]
        return [*names, *(f"equal to {value:.6g}" for value in self._equal)][which]


def _some(elements: int, most: int) -> slice:
    """A stretch at a secret place, or all elements."""
    begin = secrets.randbelow(max(1, elements - most + 1))
    return slice(begin, min(elements, begin + most))
