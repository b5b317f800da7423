"""Checks one result of an implementation at one size of a sweep against the reference in float64 (or float32).

The judge itself runs only at the corners of the grid. This is one call with random values, so that no implementation is
timed at a size at which its result is plainly wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torchstone.judging.reference.bounds import MAX_TERMS, share
from torchstone.sweeps.forward_backward import Gradients, Passes
from torchstone.sweeps.operations import Function

ALLOWANCE = 4.0
"""Factor on the rounding error that the judge's rules allow. The judge narrows its bounds by probing; this does not."""
_CHUNK_ELEMENTS = 1 << 24
"""Elements that are compared at a time, to bound memory."""


def exact_results(
    passes: Passes, reference: Function, inputs: Sequence[Any], gradients: Gradients, dtype: torch.dtype
) -> tuple[torch.Tensor, ...]:
    """The results of the reference, computed in `dtype`."""
    wide = tuple(_converted(each, dtype) for each in inputs)
    (call,) = passes.calls(reference, [wide], [tuple(_converted(each, dtype) for each in gradients)])
    return passes.results(call)


def _converted(value: Any, dtype: torch.dtype) -> Any:
    floating = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.detach().to(dtype) if floating else value


def mismatch(got: Sequence[torch.Tensor], exact: Sequence[torch.Tensor], dtype: torch.dtype, pointwise: bool) -> str:
    """What is wrong with the results; empty if they are right."""
    if len(got) != len(exact):
        return f"{len(got)} results, expected {len(exact)}"
    for place, (ours, theirs) in enumerate(zip(got, exact, strict=True)):
        if ours.shape != theirs.shape:
            return f"result {place} has shape {tuple(ours.shape)}, expected {tuple(theirs.shape)}"
        if not theirs.is_floating_point():
            if not torch.equal(ours, theirs):
                return f"result {place} differs"
            continue
        allowed = ALLOWANCE * share(ours.dtype if ours.is_floating_point() else dtype, 1 if pointwise else MAX_TERMS)
        worst, index = _largest_error(ours, theirs, allowed)
        if not worst <= 1.0:
            where = [int(each) for each in torch.unravel_index(torch.tensor(index), theirs.shape)]
            got_value, exact_value = float(ours.reshape(-1)[index]), float(theirs.reshape(-1)[index])
            values = f"got {got_value:.6g}, expected {exact_value:.6g}"
            return f"result {place} at {where}: {values}, {worst:.3g} times the allowed error"
    return ""


def _largest_error(ours: torch.Tensor, theirs: torch.Tensor, allowed: float) -> tuple[float, int]:
    """The largest error divided by its bound, and its index. NaN matches only NaN, an infinity only itself."""
    ours, theirs = ours.detach().reshape(-1), theirs.detach().reshape(-1)
    if not theirs.numel():
        return 0.0, 0
    level = _root_mean_square(theirs)
    overs, places = [], []
    for start in range(0, theirs.numel(), _CHUNK_ELEMENTS):
        piece = theirs[start : start + _CHUNK_ELEMENTS]
        our_piece = ours[start : start + _CHUNK_ELEMENTS].to(piece.dtype)
        error = (our_piece - piece).abs_()
        bound = (piece.abs() + level).mul_(allowed).clamp_(min=torch.finfo(ours.dtype).tiny)
        over = error.div_(bound).nan_to_num_(nan=torch.inf)
        over.masked_fill_((our_piece == piece) | (our_piece.isnan() & piece.isnan()), 0.0)
        most, place = over.max(dim=0)
        overs.append(most)
        places.append(place + start)
    found = torch.stack([torch.stack(overs).double(), torch.stack(places).double()])
    values = found.tolist()  # the one wait for the device
    worst = max(range(len(overs)), key=lambda number: values[0][number])
    return values[0][worst], int(values[1][worst])


def _root_mean_square(values: torch.Tensor) -> torch.Tensor:
    """Root mean square of the finite values; 0 if there are none."""
    pieces = torch.split(values, _CHUNK_ELEMENTS)
    norms = [torch.linalg.vector_norm(piece.nan_to_num(0.0, 0.0, 0.0)) for piece in pieces]
    finite = torch.stack([piece.isfinite().sum() for piece in pieces]).sum()
    level: torch.Tensor = torch.linalg.vector_norm(torch.stack(norms)) / finite.clamp(min=1).sqrt()
    return level.nan_to_num(posinf=0.0)
