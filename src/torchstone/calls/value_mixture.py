"""Makes drawn values less uniform: adds scales, runs, ramps, signs, heavy tails and special values in random places.

:mod:`torchstone.calls.draw_arguments` draws values by recipes. This module gets drawn values ``(calls, elements)``
and changes about one in sixteen of them in place. Most elements keep the declared distribution, so that results stay
representable and honest kernels well conditioned. A kernel can no longer rely on properties of plain draws. These are a
mean of about 0, no two equal values, nothing beyond five sigma, the end distributed like the beginning.

Windows (short runs of elements that are changed) never overlap and never reach from one call into another. So the order
of writes does not matter, and calls stay independent. The positions of windows come from the device's generator, their
sizes from the seed on the host, so that nothing waits for the device.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

_WINDOW_WIDTHS = (4, 8, 16, 32)
"""Elements of a window; one width is drawn for each tensor."""
_WINDOW_SHARE = 16
"""One element in about this many lies in a window."""
_SPIKE_SPACING = (96, 320)
"""Elements per spike, least and most. Spikes are sparse because error bounds depend on 64 neighbouring elements."""
_SPECIAL_SPACING = (5, 13)
"""Elements per special value, least and most."""
_LARGEST_SPIKE = 4.0
"""Exponent of two of the largest factor by which the deviation of a spike is multiplied."""
_MOST_SIGMAS = 6.0
"""Largest deviation of a spike. e**11 overflows float16, although a kernel that computes in float16 is honest. Below
-6.5 torch's own gelu has no correct digits left even in float64: a kernel more precise than torch would be refused."""
_SMALLEST_SCALE = 8
"""Exponent of two of the largest divisor of the deviations of a window."""

Change = Callable[[torch.Tensor], torch.Tensor]
"""Maps values of windows, ``(windows, width)``, to new ones of the same shape."""


@dataclass(frozen=True)
class DrawRng:
    """The randomness of one draw: two generators with one seed."""

    values: torch.Generator
    """On the device, for values and positions."""
    structure: random.Random
    """On the host, for everything that determines shapes."""

    def uniform(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.rand(shape, generator=self.values, dtype=dtype, device=self.values.device)

    def below(self, high: int, *shape: int) -> torch.Tensor:
        return torch.randint(0, high, shape, generator=self.values, device=self.values.device)


def vary_normal(values: torch.Tensor, mean: float, std: float, rng: DrawRng, *, repeats: bool) -> None:
    """Vary normal values in place: smaller scales, one sign, ramps, repeated values, heavy tails."""
    one_sign: Change = lambda w: (w - mean).abs_().mul_(_window_signs(w, rng)).add_(mean)  # noqa: E731
    changes = [lambda w: _scaled(w, mean, rng), one_sign, _ramps]
    _apply_changes(values, [*changes, _repeated_halves] if repeats else changes, rng)
    spacing = rng.structure.randint(*_SPIKE_SPACING)
    _rewrite_windows(values, 1, spacing, lambda w: _with_spikes(w, mean, _MOST_SIGMAS * std, rng), rng)


def vary_uniform(values: torch.Tensor, low: float, high: float, rng: DrawRng, *, repeats: bool) -> None:
    """Vary uniform values in place: clusters, ramps, repeated values, values close to either end of the range."""
    to_low: Change = lambda w: (w - low).mul_(_window_scales(w, rng)).add_(low)  # noqa: E731
    to_high: Change = lambda w: (w - high).mul_(_window_scales(w, rng)).add_(high)  # noqa: E731
    changes = [_clusters, _ramps, to_low, to_high]
    _apply_changes(values, [*changes, _repeated_halves] if repeats else changes, rng)


def vary_integers(values: torch.Tensor, low: int, high: int, rng: DrawRng, *, repeats: bool) -> None:
    """Vary integers in place: sorted windows, runs of one value, and both ends of [low, high)."""

    def ends(windows: torch.Tensor) -> torch.Tensor:
        return torch.where(windows % 2 == 0, low, high - 1)

    def ordered(windows: torch.Tensor) -> torch.Tensor:
        return windows.sort(dim=-1).values

    _apply_changes(values, [ordered, ends, _runs] if repeats else [ordered], rng)


def vary_booleans(values: torch.Tensor, rng: DrawRng) -> None:
    """Vary booleans in place: runs of one value."""
    _apply_changes(values, [_runs], rng)


def sprinkle_specials(values: torch.Tensor, rng: DrawRng) -> None:
    """Write infinities, NaN, both zeros, subnormals and the largest numbers, for operators that define results."""
    limits = torch.finfo(values.dtype)
    tiny = limits.smallest_normal * 0.25
    listed = (math.inf, -math.inf, math.nan, -0.0, 0.0, tiny, -tiny, limits.max, limits.min)
    table = torch.tensor(listed, dtype=values.dtype, device=values.device)
    _rewrite_windows(
        values, 1, rng.structure.randint(*_SPECIAL_SPACING), lambda w: table[rng.below(len(listed), *w.shape)], rng
    )


def _apply_changes(values: torch.Tensor, changes: list[Change], rng: DrawRng) -> None:
    """Rewrite some windows of ``values`` in place. A window is a short run of neighbouring elements of one call.

    Positions and width are random. A change is a function from the values of windows to new ones. The windows are
    divided among the changes: each window gets one of them.
    """
    changes = rng.structure.sample(changes, len(changes))

    def in_turn(windows: torch.Tensor) -> torch.Tensor:
        for position, change in enumerate(changes):
            part = windows[position :: len(changes)]
            if part.numel():
                part.copy_(change(part))
        return windows

    width = min(rng.structure.choice(_WINDOW_WIDTHS), values.shape[1])
    if width > 1:
        _rewrite_windows(values, width, width * _WINDOW_SHARE, in_turn, rng)


def _rewrite_windows(values: torch.Tensor, width: int, spacing: int, change: Change, rng: DrawRng) -> None:
    """Rewrite in place one window of ``width`` elements, at a random position, in about every ``spacing`` elements."""
    for region in _regions(values, width, spacing, rng):
        rows, count, size = region.shape
        positions = rng.below(size - width + 1, rows, count, 1)
        if width > 1:
            positions = positions + torch.arange(width, device=values.device)
        windows = region.gather(2, positions)
        changed = change(windows.reshape(rows * count, width)).reshape(windows.shape)
        region.scatter_(2, positions, changed)


def _regions(values: torch.Tensor, width: int, spacing: int, rng: DrawRng) -> Iterator[torch.Tensor]:
    """Divide the calls into regions, each of which gets one window. If calls are short, only some calls have a region.

    Yields one view ``(calls, regions, size)`` of the values, or nothing.
    """
    calls, elements = values.shape
    size = min(max(width, spacing), elements)
    count = elements // size
    every = max(1, round(spacing / elements))
    first = rng.structure.randrange(every)
    if first < calls:
        begin = rng.structure.randint(0, elements - count * size)
        chosen = values[first::every, begin : begin + count * size]
        yield chosen.view(chosen.shape[0], count, size)


def _window_scales(windows: torch.Tensor, rng: DrawRng) -> torch.Tensor:
    """A power of two of at most 1 for each window."""
    return torch.exp2(-rng.below(_SMALLEST_SCALE + 1, windows.shape[0], 1).to(windows.dtype))


def _window_signs(windows: torch.Tensor, rng: DrawRng) -> torch.Tensor:
    return rng.below(2, windows.shape[0], 1).to(windows.dtype).mul_(2.0).sub_(1.0)


def _scaled(windows: torch.Tensor, mean: float, rng: DrawRng) -> torch.Tensor:
    return (windows - mean).mul_(_window_scales(windows, rng)).add_(mean)


def _with_spikes(windows: torch.Tensor, mean: float, limit: float, rng: DrawRng) -> torch.Tensor:
    """Multiply deviations by random factors, up to a limit that differs for each, so that no two become equal."""
    factor, within = rng.uniform(2, *windows.shape, dtype=windows.dtype)
    most = within.mul_(0.25).add_(0.75).mul_(limit)
    return (windows - mean).mul_(torch.exp2(factor.mul_(_LARGEST_SPIKE))).clamp_(-most, most).add_(mean)


def _ramps(windows: torch.Tensor) -> torch.Tensor:
    """Values from the window's first to its last in equal steps: sorted, up or down."""
    steps = torch.linspace(0.0, 1.0, windows.shape[1], dtype=windows.dtype, device=windows.device)
    return torch.lerp(windows[:, :1], windows[:, -1:], steps)


def _runs(windows: torch.Tensor) -> torch.Tensor:
    return windows[:, :1].expand_as(windows).clone()


def _repeated_halves(windows: torch.Tensor) -> torch.Tensor:
    """The first half twice. Not a run of one value: the variance of a constant row is only rounding error."""
    half = (windows.shape[1] + 1) // 2
    return torch.cat([windows[:, :half], windows[:, : windows.shape[1] - half]], dim=1)


def _clusters(windows: torch.Tensor) -> torch.Tensor:
    """Values close around the window's first one."""
    return torch.lerp(windows[:, :1], windows, 2.0**-6)
