"""Check of random results: values lie above, below or at thresholds as often as torch's, over all calls of a kernel.

A rate of 0.094 instead of 0.1, or a tail that ends at 3.5 standard deviations, is lost in the noise of one result.
So thresholds are taken from torch's own draws of the first call, and elements beyond them are counted over all calls.
Thresholds are the median, the quartiles, and the quantiles of 0.1, 0.01, down to 0.00001 in both tails, as far as
torch's draws have enough values there. The most frequent value is one more if it is at least 5 % of all values. In each
call, the candidate's and torch's elements beyond each threshold are counted at secret positions. The differences of the
counts are added up.

Probability of a false alarm: given the inputs both counts have the same mean. Their variance is at most ``n p (1 -
p)`` for the mean chance ``p`` of all elements. Their differences are sums of bounded terms: Bernstein, with an
exponent that grows by the logarithm of the number of calls. So all calls of a trial and all thresholds together
refuse an honest kernel less than once in 1e9 trials. If elements depend on one another, the
counts of torch's own draws vary more. This is measured on all of its draws in calls judged in full, and allowed.

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
"""The same for attention, whose kernels in torch use 8 random bits."""
RARE_SLACK = 0.5
"""Relative difference that is allowed in the rate of a rare event."""
EXPONENT = 24.0
"""A threshold raises a false alarm in the n-th call with a probability of less than exp(-EXPONENT) / n."""
_LEVELS = (0.5, 0.25, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
"""Shares of all values that lie above an upper threshold, or below a lower one."""
_LEAST_BEYOND_THRESHOLD = 16
"""Least number of torch's elements that must lie beyond a threshold when it is chosen."""
_LEAST_FREQUENT_SHARE = 0.05
"""Least share of all elements that the most frequent value must have to become a threshold."""
_MOST_SORTED_ELEMENTS = 1 << 20
"""Most elements of torch's draws that thresholds are chosen from."""
_FIRST_CALLS = 8
"""Number of first calls in which more elements are counted."""
_MOST_ELEMENTS, _MOST_ELEMENTS_FIRST = 1 << 16, 1 << 19
"""Most elements of a result that are counted in a call, and in one of the first calls."""
_MOST_REFERENCE_ELEMENTS = 1 << 22
"""Most elements of torch's draws that are counted in a call, all draws together."""


class Rates:
    """Compares the rates of one result of one case with torch's, adding up counts over calls."""

    def __init__(self, operator: str, own: torch.Tensor) -> None:
        """``own``: many draws of torch's for the first call, ``(draws, *shape)``."""
        rows = real_rows(own)
        self._thresholds = _Thresholds(rows)
        is_rounded = own.dtype.is_floating_point or own.dtype.is_complex
        resolution = ATTENTION_RESOLUTION if operators.traits(operator).attends else RESOLUTION
        rounding = torch.finfo(own.dtype).eps if is_rounded else 0.0
        self._resolution = self._thresholds.per_threshold(max(resolution, rounding), of_equal=resolution)
        nothing = torch.zeros(len(self._resolution), dtype=torch.float64)
        self._calls, self._elements = 0, 0
        self._difference, self._variance, self._mean = nothing, nothing, nothing
        self._spread, self._usual_spread = nothing, nothing

    def mismatch_text(self, own: torch.Tensor, got: torch.Tensor, widened: float = 1.0) -> str | None:
        """Return the threshold at which the candidate's counts of all calls differ from torch's; None if there is none.

        ``own``: torch's draws for this call. ``widened``: how much farther apart torch's draws are known to be than
        draws of independent elements.
        """
        rows, result = real_rows(own), real_rows(got.unsqueeze(0))
        if not result.numel() or rows.shape[1] != result.shape[1] or not len(self._resolution):
            return None
        self._calls += 1
        part = _secret_slice(rows.shape[1], _MOST_ELEMENTS_FIRST if self._calls <= _FIRST_CALLS else _MOST_ELEMENTS)
        rows = rows[: max(1, _MOST_REFERENCE_ELEMENTS // (part.stop - part.start)), part]
        counts = self._thresholds.counts(torch.cat([result[:, part], rows]))
        self._add(counts[0], counts[1:], rows.shape[1])
        return self._text(self._allowed(widened * widened))

    def _add(self, got: torch.Tensor, own: torch.Tensor, elements: int) -> None:
        draws = len(own)
        share = (got + own.sum(dim=0)) / (elements * (draws + 1))
        variance = elements * share * (1.0 - share)
        self._elements += elements
        self._difference = self._difference + got - own.mean(dim=0)
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
        excess = self._difference.abs() - allowed
        which = int(excess.argmax())
        if excess[which] <= 0.0:
            return None
        torchs = float(self._mean[which])
        return (
            f"{torchs + float(self._difference[which]):.7g} of {self._elements} values in {self._calls} calls are "
            f"{self._thresholds.name(which)}; of torch's own values {torchs:.7g} are, "
            f"allowed difference {float(allowed[which]):.4g}"
        )


class _Thresholds:
    """Thresholds from torch's draws. Counts the values above, below or equal to each."""

    def __init__(self, own: torch.Tensor) -> None:
        values = own.reshape(-1)
        ordered = in_order(values[secret_places(values.numel(), _MOST_SORTED_ELEMENTS).to(values.device)])
        levels = [level for level in _LEVELS if level * len(ordered) >= _LEAST_BEYOND_THRESHOLD]
        ends = [min(len(ordered) - 1, round(level * len(ordered))) for level in levels]
        self._above = list(dict.fromkeys(ordered[len(ordered) - 1 - end].item() for end in ends))
        self._below = list(dict.fromkeys(ordered[end].item() for end in ends))
        distinct, counts = torch.unique_consecutive(ordered, return_counts=True)
        frequent = len(counts) and int(counts.amax()) >= max(
            _LEAST_BEYOND_THRESHOLD, _LEAST_FREQUENT_SHARE * len(ordered)
        )
        self._equal = [distinct[counts.argmax()].item()] if frequent else []

    def per_threshold(self, usual: float, of_equal: float) -> torch.Tensor:
        """``(thresholds,)``: ``usual`` for those above and below, ``of_equal`` for an equal value."""
        many = len(self._above) + len(self._below)
        return torch.tensor([usual] * many + [of_equal] * len(self._equal), dtype=torch.float64)

    def counts(self, rows: torch.Tensor) -> torch.Tensor:
        """``(rows, thresholds)``, on the host. numpy counts booleans faster on the CPU, float32 sums on a device."""
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


def _secret_slice(elements: int, most: int) -> slice:
    """A slice of ``most`` elements at a secret position, or all elements if there are no more."""
    begin = secrets.randbelow(max(1, elements - most + 1))
    return slice(begin, min(elements, begin + most))
