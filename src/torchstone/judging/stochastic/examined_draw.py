"""Holds one random result and torch's draws of the same call, for the checks of what its elements depend on."""

from __future__ import annotations

import torch

from torchstone.judging.stochastic.rank_statistics import Ranking
from torchstone.judging.stochastic.secret_places import secret_places

DEVIATIONS = 9.0
"""Standard deviations of a sum of terms of random sign from which it counts as a difference."""
LOOKED_AT = 1 << 12
"""Elements that are compared with their inputs. Ranks are taken among the values of these elements."""
MARGIN = 1.25
"""Factor on widths that are measured on torch's own draws."""
ROWS_LEARNT_FROM = 8
"""Most draws of torch's that are compared with each other to measure how far honest results are apart."""
LONG_STRETCH = 1 << 15
"""Most elements that are compared with one another in a call that is judged in full."""


class ExaminedDraw:
    """A result, torch's draws of the same call, and the values of both at secret positions."""

    def __init__(self, own: torch.Tensor, got: torch.Tensor, row_length: int, epsilon: float) -> None:
        self.own = own
        self.got = got
        self.row_length = row_length
        self.epsilon = epsilon
        """``eps`` of the result's dtype; 0 for integers."""
        self.elements = got.numel()
        self.in_full = len(own) > 2
        places = secret_places(self.elements, LOOKED_AT).to(got.device)
        self.own_here = own[:, places].to(torch.float64)
        self.got_here = got[places].to(torch.float64)
        self._ranking = Ranking(torch.cat([self.own_here[0], self.got_here]))

    def below(self, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """For each value, the shares of the sampled values that are less than it, and that are at most equal to it."""
        return self._ranking.below(values)

    def ranks(self, values: torch.Tensor) -> torch.Tensor:
        """Ranks among the sampled values, from 0 to 1. Ties get the mean rank."""
        return self._ranking.ranks(values.to(torch.float64))

    def reference_rows(self) -> torch.Tensor:
        """Up to ROWS_LEARNT_FROM of torch's draws, an even number."""
        return self.own[: min(ROWS_LEARNT_FROM, len(self.own) // 2 * 2)]
