"""Makes drawn values less uniform: adds scales, runs, ramps, signs, heavy tails and special values in random places.

Separate from :mod:`torchstone.calls.random_arguments`, which knows recipes: this only knows ``(calls, elements)`` of
values already drawn, and changes about one in sixteen of them in place. Most elements keep the declared distribution,
so that results stay representable and honest kernels well conditioned. A kernel can no longer rely on what holds for
plain draws: the mean is about 0, no two values are equal, nothing is beyond five sigma, the tail is like the head.

Windows (short stretches that are changed) never overlap and never reach from one call into another. So the order of
writes does not matter, and calls stay independent. The places of windows come from the device's generator, their sizes
from the seed on the host, so that nothing waits for the device.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

_WIDTHS = (4, 8, 16, 32)
_WINDOW_SHARE = 16
"""There is one window of width w in about this many times w elements."""
_SPIKE_SPACING = (96, 320)
"""Elements per spike. Sparse on purpose: bounds look at neighbourhoods of 64 elements."""
_SPECIAL_SPACING = (5, 13)
_LARGEST_SPIKE = 4.0
"""Exponent of two: the most that the deviation of a spike is multiplied by."""
_MOST_SIGMAS = 6.0
"""Largest deviation of a spike. e**11 overflows float16, although a kernel that computes in float16 is honest. Below
-6.5 torch's own gelu has no correct digits left even in float64: a kernel more precise than torch would be refused."""
_SMALLEST_SCALE = 8
"""Exponent of two: the most that the deviations of a window are divided by."""

Change = Callable[[torch.Tensor], torch.Tensor]
"""``(windows, width)`` values to others of the same shape."""


@dataclass(frozen=True)
class DrawRng:
    """The randomness of one draw: values from the device, structure from the host, both from one seed."""

    values: torch.Generator
    structure: random.Random

    def uniform(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.rand(shape, generator=self.values, dtype=dtype, device=self.values.device)

    def below(self, high: int, *shape: int) -> torch.Tensor:
        return torch.randint(0, high, shape, generator=self.values, device=self.values.device)


def vary_normal(values: torch.Tensor, mean: float, std: float, dice: DrawRng, *, repeats: bool) -> None:
    """Smaller scales, one sign, ramps, repeated values, heavy tails."""
    one_sign: Change = lambda w: (w - mean).abs_().mul_(_signs(w, dice)).add_(mean)  # noqa: E731
    changes = [lambda w: _scaled(w, mean, dice), one_sign, _ramps]
    _change_windows(values, [*changes, _echoes] if repeats else changes, dice)
    spacing = dice.structure.randint(*_SPIKE_SPACING)
    _change(values, 1, spacing, lambda w: _spiked(w, mean, _MOST_SIGMAS * std, dice), dice)


def vary_uniform(values: torch.Tensor, low: float, high: float, dice: DrawRng, *, repeats: bool) -> None:
    """Clusters, ramps, repeated values, values close to either end. Each lies between values of the plain draw."""
    to_low: Change = lambda w: (w - low).mul_(_scales(w, dice)).add_(low)  # noqa: E731
    to_high: Change = lambda w: (w - high).mul_(_scales(w, dice)).add_(high)  # noqa: E731
    changes = [_clusters, _ramps, to_low, to_high]
    _change_windows(values, [*changes, _echoes] if repeats else changes, dice)


def vary_integers(values: torch.Tensor, low: int, high: int, dice: DrawRng, *, repeats: bool) -> None:
    """Sorted stretches; runs of one value, and both ends of [low, high)."""

    def ends(windows: torch.Tensor) -> torch.Tensor:
        return torch.where(windows % 2 == 0, low, high - 1)

    def ordered(windows: torch.Tensor) -> torch.Tensor:
        return windows.sort(dim=-1).values

    _change_windows(values, [ordered, ends, _runs] if repeats else [ordered], dice)


def vary_booleans(values: torch.Tensor, dice: DrawRng) -> None:
    """Runs of one value."""
    _change_windows(values, [_runs], dice)


def sprinkle_specials(values: torch.Tensor, dice: DrawRng) -> None:
    """Infinities, NaN, both zeros, subnormals and the largest numbers, for operators that define them."""
    limits = torch.finfo(values.dtype)
    tiny = limits.smallest_normal * 0.25
    listed = (math.inf, -math.inf, math.nan, -0.0, 0.0, tiny, -tiny, limits.max, limits.min)
    table = torch.tensor(listed, dtype=values.dtype, device=values.device)
    _change(
        values, 1, dice.structure.randint(*_SPECIAL_SPACING), lambda w: table[dice.below(len(listed), *w.shape)], dice
    )


def _change_windows(values: torch.Tensor, changes: list[Change], dice: DrawRng) -> None:
    """Give the windows of one random layout to the changes in turn."""
    changes = dice.structure.sample(changes, len(changes))

    def shared_out(windows: torch.Tensor) -> torch.Tensor:
        for position, change in enumerate(changes):
            part = windows[position :: len(changes)]
            if part.numel():
                part.copy_(change(part))
        return windows

    width = min(dice.structure.choice(_WIDTHS), values.shape[1])
    if width > 1:
        _change(values, width, width * _WINDOW_SHARE, shared_out, dice)


def _change(values: torch.Tensor, width: int, spacing: int, change: Change, dice: DrawRng) -> None:
    """Rewrite one window of the width, at a random place, in every ``spacing`` elements or so."""
    for region in _regions(values, width, spacing, dice):
        rows, count, size = region.shape
        places = dice.below(size - width + 1, rows, count, 1)
        if width > 1:
            places = places + torch.arange(width, device=values.device)
        windows = region.gather(2, places)
        changed = change(windows.reshape(rows * count, width)).reshape(windows.shape)
        region.scatter_(2, places, changed)


def _regions(values: torch.Tensor, width: int, spacing: int, dice: DrawRng) -> Iterator[torch.Tensor]:
    """A view ``(calls, regions, size)`` that holds each element at most once; of short calls, some calls only."""
    calls, elements = values.shape
    size = min(max(width, spacing), elements)
    count = elements // size
    every = max(1, round(spacing / elements))
    first = dice.structure.randrange(every)
    if first < calls:
        begin = dice.structure.randint(0, elements - count * size)
        chosen = values[first::every, begin : begin + count * size]
        yield chosen.view(chosen.shape[0], count, size)


def _scales(windows: torch.Tensor, dice: DrawRng) -> torch.Tensor:
    """A power of two of at most 1 for each window."""
    return torch.exp2(-dice.below(_SMALLEST_SCALE + 1, windows.shape[0], 1).to(windows.dtype))


def _signs(windows: torch.Tensor, dice: DrawRng) -> torch.Tensor:
    return dice.below(2, windows.shape[0], 1).to(windows.dtype).mul_(2.0).sub_(1.0)


def _scaled(windows: torch.Tensor, mean: float, dice: DrawRng) -> torch.Tensor:
    return (windows - mean).mul_(_scales(windows, dice)).add_(mean)


def _spiked(windows: torch.Tensor, mean: float, limit: float, dice: DrawRng) -> torch.Tensor:
    """Multiply deviations, up to a limit that differs for each, so that no two become equal."""
    factor, within = dice.uniform(2, *windows.shape, dtype=windows.dtype)
    most = within.mul_(0.25).add_(0.75).mul_(limit)
    return (windows - mean).mul_(torch.exp2(factor.mul_(_LARGEST_SPIKE))).clamp_(-most, most).add_(mean)


def _ramps(windows: torch.Tensor) -> torch.Tensor:
    """From the first value to the last in equal steps: a sorted stretch, up or down."""
    steps = torch.linspace(0.0, 1.0, windows.shape[1], dtype=windows.dtype, device=windows.device)
    return torch.lerp(windows[:, :1], windows[:, -1:], steps)


def _runs(windows: torch.Tensor) -> torch.Tensor:
    return windows[:, :1].expand_as(windows).clone()


def _echoes(windows: torch.Tensor) -> torch.Tensor:
    """The first half twice. No run of one value: the variance of a constant row is all rounding error."""
    half = (windows.shape[1] + 1) // 2
    return torch.cat([windows[:, :half], windows[:, : windows.shape[1] - half]], dim=1)


def _clusters(windows: torch.Tensor) -> torch.Tensor:
    """Close around the first value."""
    return torch.lerp(windows[:, :1], windows, 2.0**-6)
