"""The plan ``lone``: attention that drops out at random, of which every result is made of one value alone.

Attention adds up what it keeps of all keys, and a sum of random parts is judged as a distribution: one percent more, or
a key that should not be seen, is lost in the noise. But where all values except those of one key are 0, an element of
the result is either 0 or the one number that its weight makes of it, divided by the share that is kept. What that is
torch's own draws show; and where these are always 0, the key is not seen.
"""

from __future__ import annotations

import math

import torch

from torchstone import operators, schema
from torchstone.judging.inputs import DrawnCall, overlaps
from torchstone.judging.lots import Lot
from torchstone.judging.numbers import unlikelihood

LONE = "lone"
DRAWS = 24
"""Of torch's: what is kept half of the time is not seen in so many once in ten million."""
_FAMILY = "scaled_dot_product"
_VALUE, _RATE = "value", "dropout_p"
"""Names of arguments."""
_ROOM = 2.0**-12
"""By which an honest weight may differ, relatively: a good deal more than sums in another order, less than what fewer
bits make of it."""
_ROUNDINGS = 4.0
_MOST_WRONG = 1e-3
_EXPONENT = 30.0
"""More appear by chance where torch's never did with a probability of less than exp(-this)."""


def may_be_lone(case: schema.Case) -> bool:
    place = _place(case)
    return place is not None and 0.0 < _rate(case) < 1.0 and not overlaps(schema.tensors_of(case)[place])


def plant_lone(call: DrawnCall, lot: Lot) -> None:
    place = _place(call.case)
    if place is None:
        return
    view = call.tensors[place].view
    heads = view.shape[:-2]
    kept = lot.below(view.shape[-2], math.prod(heads)).view(*heads, 1)
    seen = torch.arange(view.shape[-2]) == kept
    view.mul_(seen.unsqueeze(-1).to(view.dtype).to(view.device))


def misfit(drawn: torch.Tensor, got: torch.Tensor) -> str | None:
    """What is neither 0 nor what torch keeps there. ``drawn``: :data:`DRAWS` results of torch's, stacked."""
    which = drawn.abs().argmax(dim=0, keepdim=True)
    kept = drawn.gather(0, which)[0].to(torch.float64)
    result, finite = got.to(torch.float64), torch.isfinite(kept)
    room = max(_ROOM, _ROUNDINGS * torch.finfo(got.dtype).eps if got.dtype.itemsize < 4 else 0.0)
    away = torch.minimum(result.abs(), (result - kept).abs())
    known = finite & (kept != 0.0)
    wrong = known & ~(away <= room * kept.abs())
    if int(wrong.sum()) > _MOST_WRONG * int(known.sum()):
        worst = int(torch.where(wrong, away.nan_to_num(nan=math.inf), -1.0).argmax())
        found = f"got {float(result.flatten()[worst]):.6g}, torch keeps {float(kept.flatten()[worst]):.6g} or nothing"
        return f"{int(wrong.sum())} of {int(known.sum())} elements that one value makes are otherwise; {found}"
    appeared = int((finite & (kept == 0.0) & (result != 0.0)).sum()) / got.shape[-1]
    if unlikelihood(appeared, _never_kept(drawn, known) / got.shape[-1]) > _EXPONENT:
        return f"a value shows in {round(appeared)} rows where none of torch's {len(drawn)} draws has any"
    return None


def _never_kept(drawn: torch.Tensor, known: torch.Tensor) -> float:
    """In how many elements torch's draws are all 0 by chance, at most: one that is never 0 counts as the rarest."""
    kept = float((drawn != 0)[:, known].double().mean()) if bool(known.any()) else 1.0
    missed = max(1.0 - kept, 1.0 / drawn.numel()) ** len(drawn)
    return missed * drawn[0].numel()


def _place(case: schema.Case) -> int | None:
    """Of the values among a case's tensors, if they lie by keys."""
    if _FAMILY not in case.operator or schema.is_gradient(case.operator):
        return None
    for place, (name, recipe) in enumerate(operators.named_tensors(case)):
        drawn = isinstance(recipe.fill, schema.Normal | schema.Uniform)
        if name == _VALUE and drawn and len(recipe.shape) > 2 and 0 not in recipe.shape:
            return place
    return None


def _rate(case: schema.Case) -> float:
    given = dict(operators.named_arguments(case.operator, case.args, case.kwargs)).get(_RATE)
    return float(given.value) if isinstance(given, schema.Scalar) and isinstance(given.value, int | float) else 0.0
