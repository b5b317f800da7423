"""Rank statistics of samples: sorted values, ranks, largest gap between two distributions (Kolmogorov-Smirnov).

Tensors on the CPU are sorted by numpy, which is faster there, bfloat16 and float16 as float32. Tensors on a device are
sorted by torch.
"""

from __future__ import annotations

import torch

_SORTED_AS_FLOAT32 = (torch.bfloat16, torch.float16)
"""Dtypes that numpy lacks (bfloat16) or sorts slowly (float16)."""


def in_order(values: torch.Tensor) -> torch.Tensor:
    """The values, sorted along the last dimension."""
    if values.device.type != "cpu":
        return values.sort(dim=-1).values
    if values.dtype in _SORTED_AS_FLOAT32:
        return in_order(values.to(torch.float32)).to(values.dtype)
    found = values.clone(memory_format=torch.contiguous_format)
    found.numpy().sort(axis=-1)
    return found


def largest_gap(one: torch.Tensor, other: torch.Tensor) -> float:
    """Kolmogorov-Smirnov distance of two sorted samples: the largest gap between their distribution functions."""
    both = torch.cat([one, other])
    order = _stable_order(both)
    steps = torch.tensor([-1.0 / len(other), 1.0 / len(one)], dtype=torch.float64, device=both.device)
    shares = steps[(order < len(one)).long()]
    values = both[order]
    last = torch.nn.functional.pad(values[1:] != values[:-1], (0, 1), value=True)  # the last of equal values
    return float(shares.cumsum(0)[last].abs().amax())


def _stable_order(values: torch.Tensor) -> torch.Tensor:
    """Indices of a stable sort, which is quick for two sorted samples one after the other."""
    if values.device.type != "cpu":
        return values.sort(stable=True).indices
    return torch.from_numpy(values.numpy().argsort(kind="stable"))


class Ranking:
    """Looks up the ranks of values in a sample."""

    def __init__(self, values: torch.Tensor) -> None:
        """``values``: float64, flat, at least one."""
        self._distinct, counts = torch.unique_consecutive(in_order(values), return_counts=True)
        counts = counts.to(torch.float64) / values.numel()
        nothing = counts.new_zeros(1)
        self._before = torch.cat([nothing, counts.cumsum(0)])
        self._share = torch.cat([counts, nothing])

    def below(self, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """For each value, the shares of the sample that are less than it, and that are at most equal to it."""
        places = torch.searchsorted(self._distinct, values.contiguous())
        there = self._distinct[places.clamp(max=len(self._distinct) - 1)] == values
        less = self._before[places]
        return less, less + torch.where(there, self._share[places], 0.0)

    def ranks(self, values: torch.Tensor) -> torch.Tensor:
        """Ranks from 0 to 1. Ties get the mean rank."""
        less, upto = self.below(values)
        return (less + upto) / 2
