"""Screens many calls at once: calls whose results are close to torch's pass without a float64 evaluation.

Where bounds are requested, only results equal to torch's own pass, because every bound accepts them. They pass only
after torch's own error is known. Other calls are compared in full.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from torchstone.calls.bitwise_equality import bits
from torchstone.calls.reference_calls import stacked
from torchstone.judging.compare.structure import metadata_fits
from torchstone.judging.reference.expected import Expected, Screen
from torchstone.judging.reference.float64 import pieces

_SAMPLED_ELEMENTS = 1 << 15
"""About how many elements of a result are sampled to screen the root mean square and the bias of its distances."""


def screened(
    expected: Sequence[Expected], outputs: Sequence[Sequence[Any]], inputs_after: Sequence[Sequence[torch.Tensor]]
) -> Iterator[bool]:
    """For each call, whether it passes: it is right without a full comparison."""
    for begin, end in _runs_of_one_batch(expected):
        if _may_be_screened(expected[begin:end], outputs[begin:end]):
            yield from _screen_run(expected[begin:end], outputs[begin:end], inputs_after[begin:end]).tolist()
        else:
            yield from [False] * (end - begin)


def _may_be_screened(expected: Sequence[Expected], outputs: Sequence[Sequence[Any]]) -> bool:
    """Whether calls may pass at all.

    Where bounds are requested, they may not while torch's own error, which goes into the record, is unknown.
    """
    reference = expected[0].batch.reference
    if not reference.screens or (expected[0].with_bounds and not reference.errors_known):
        return False
    return all(metadata_fits(e, o) for e, o in zip(expected, outputs, strict=True))


def _runs_of_one_batch(expected: Sequence[Expected]) -> Iterator[tuple[int, int]]:
    """Begin and end of each run of consecutive calls of one batch."""
    begin = 0
    for end in range(1, len(expected) + 1):
        last = expected[end - 1]
        if end == len(expected) or expected[end] != replace(last, index=last.index + 1):
            yield begin, end
            begin = end


def _screen_run(
    expected: Sequence[Expected], outputs: Sequence[Sequence[Any]], inputs_after: Sequence[Sequence[torch.Tensor]]
) -> torch.Tensor:
    """Whether each of the calls passes, on the device. Where bounds are requested, only results equal to torch's do."""
    batch, first, must_be_equal = expected[0].batch, expected[0].index, expected[0].with_bounds
    rows = slice(first, first + len(expected))
    passed = torch.ones(len(outputs), dtype=torch.bool, device=batch.reference.device)
    for place, native in batch.evaluation.tensors.items():
        source = outputs if place.kind == "output" else inputs_after
        got = stacked([of_call[place.position] for of_call in source])
        screen = None if must_be_equal else batch.reference.screen(place, native.dtype, native[0].numel())
        passed &= all_of_each(native[rows], got, screen)
    written = batch.reference.contract.mutated
    for position in range(len(batch.calls[0].tensors)):
        if position not in written:
            before = stacked([call.tensors[position].storage for call in batch.calls[rows]])
            after = stacked([of_call[position] for of_call in inputs_after])
            passed &= all_of_each(bits(before), bits(after), None)
    return passed


def all_of_each(native: torch.Tensor, got: torch.Tensor, screen: Screen | None) -> torch.Tensor:
    """For each call of a ``(calls, ...)`` tensor, whether it passes the screen. ``screen`` None: it must be equal."""
    calls = native.shape[0]
    passed = torch.ones(calls, dtype=torch.bool, device=native.device)
    if not native.is_cuda and torch.equal(native, got):  # equal results pass every screen; a device would wait here
        return passed
    flat_native, flat_got = native.reshape(calls, -1), got.reshape(calls, -1)
    for piece in pieces(flat_native.shape[1], native.device, rows=calls):
        near = _near(flat_native[:, piece], flat_got[:, piece], screen, piece)
        passed &= near.view(torch.uint8).amin(dim=1).to(torch.bool)  # Many times faster than all().
    return passed if screen is None else passed & _rms_and_bias_are_small(flat_native, flat_got, screen)


def _near(native: torch.Tensor, got: torch.Tensor, screen: Screen | None, piece: slice) -> torch.Tensor:
    if screen is None:
        return _same(native, got)
    n, g, allowed = _distances(native, got, screen, piece)
    # Strictly less: an infinity is never less than another, and equality is accepted anyway.
    close = (g - n).abs() < allowed
    if not native.is_cuda and bool(close.all()):  # on a device the answer would cost a wait
        return close
    return close | _same(native, got)


def _same(native: torch.Tensor, got: torch.Tensor) -> torch.Tensor:
    """Where both have equal values, or both are NaN."""
    same = got == native
    return same | ((got != got) & (native != native)) if native.is_floating_point() else same


def _distances(
    native: torch.Tensor, got: torch.Tensor, screen: Screen, piece: slice
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Both results as float32 or wider, and the largest distance allowed for each element."""
    kind = torch.promote_types(native.dtype, torch.float32)
    n, g = native.to(kind), got.to(kind)
    allowed = n.abs().add_(screen.level).mul_(screen.share)
    return n, g, allowed if screen.inside is None else allowed.mul_(screen.inside[piece])


def _rms_and_bias_are_small(native: torch.Tensor, got: torch.Tensor, screen: Screen) -> torch.Tensor:
    """For each call, whether root mean square and bias of its distances are small enough.

    These limits are stricter than those of a full comparison, which adds twice torch's own root mean square and bias.
    Of large results only a sample is examined, to save time. A kernel cannot foresee where the sample begins.
    """
    step = max(1, native.shape[1] // _SAMPLED_ELEMENTS)
    sample = slice(secrets.randbelow(step), None, step)
    n, g, allowed = _distances(native[:, sample], got[:, sample], screen, sample)
    distance = (g - n).div_(allowed).nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
    count = max(1, distance.shape[1])
    small = distance.abs().square_().sum(dim=1) <= screen.rms * screen.rms * count
    if distance.is_complex():
        return small
    outward = distance * n.sign()
    return (
        small & (distance.sum(dim=1).abs() <= screen.bias * count) & (outward.sum(dim=1).abs() <= screen.bias * count)
    )
