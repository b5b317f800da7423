"""Input plan (special values written into test inputs): attention with dropout, where one key has values other than 0.

Attention adds up the values of the keys that dropout keeps. Such a sum is judged as a distribution, and its noise
hides an error of one percent, or a key that a mask should hide. If only one key has values that are not 0, an element
of the result is either 0 or one number. Draws of the reference show which number. Where they are always 0, the key is
masked. :func:`misfit` compares a result with such draws.
"""

from __future__ import annotations

import math

import torch

from torchstone import operators, schema
from torchstone.calls.random_arguments import DrawnCall, overlaps
from torchstone.judging.plans.base import Plan, Policy, Positions, When
from torchstone.judging.plans.case_facts import CaseFacts
from torchstone.judging.plans.plan_randomness import PlanRng
from torchstone.judging.tail_bound import unlikelihood

DRAWS = 24
"""Number of reference draws. An element kept with p = 0.5 is absent from all 24 with probability 6e-8."""
_VALUE, _RATE = "value", "dropout_p"
"""Names of arguments."""
_ROOM = 2.0**-12
"""Relative error allowed for a weight: more than sums in another order cause, less than a lower precision does."""
_ROUNDINGS = 4.0
_MOST_WRONG = 1e-3
_EXPONENT = 30.0
"""Values where the reference never has any are an error if their probability is less than exp(-this)."""


class OneKey(Plan):
    """One key for each head keeps its values."""

    name = "lone"
    phrase = "all values were 0 but those of one key for each head"
    policy = Policy(When.RANDOM_RESULTS, Positions.IRRELEVANT)

    def applies(self, facts: CaseFacts) -> bool:
        place = _place(facts.case)
        return place is not None and 0.0 < _rate(facts.case) < 1.0 and not overlaps(facts.recipes[place])

    def among_timed(self, facts: CaseFacts, on_host: bool) -> bool:
        return False

    def write(self, call: DrawnCall, rng: PlanRng) -> None:
        place = _place(call.case)
        if place is None:
            return
        view = call.tensors[place].view
        heads = view.shape[:-2]
        kept = rng.below(view.shape[-2], math.prod(heads)).view(*heads, 1)
        seen = torch.arange(view.shape[-2]) == kept
        view.mul_(seen.unsqueeze(-1).to(view.dtype).to(view.device))


def misfit(drawn: torch.Tensor, got: torch.Tensor) -> str | None:
    """Describe elements that are neither 0 nor the reference's number, or None.

    ``drawn``: :data:`DRAWS` results of the reference, stacked.
    """
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
    """Upper estimate of the elements in which all reference draws are 0 by chance."""
    kept = float((drawn != 0)[:, known].double().mean()) if bool(known.any()) else 1.0
    missed = max(1.0 - kept, 1.0 / drawn.numel()) ** len(drawn)
    return missed * drawn[0].numel()


def _place(case: schema.Case) -> int | None:
    """Which of a case's tensors holds the values, if it has a dimension of keys."""
    if not operators.traits(case.operator).is_attention:
        return None
    for place, (name, recipe) in enumerate(operators.named_tensors(case)):
        drawn = isinstance(recipe.fill, schema.Normal | schema.Uniform)
        if name == _VALUE and drawn and len(recipe.shape) > 2 and 0 not in recipe.shape:
            return place
    return None


def _rate(case: schema.Case) -> float:
    given = dict(operators.named_arguments(case.operator, case.args, case.kwargs)).get(_RATE)
    return float(given.value) if isinstance(given, schema.Scalar) and isinstance(given.value, int | float) else 0.0
