"""Input plan (special values written into test inputs): attention with dropout, where one key has values other than 0.

Attention adds up the values of the keys that dropout keeps. Such a sum is judged as a distribution, and its noise
hides an error of one percent, or a key that should be masked. If only one key has non-zero values, each element of the
result is either 0 or one number. Draws of the reference show that number. Where all draws are 0, the key is masked.
:func:`dropout_mismatch_text` compares a result with such draws.
"""

from __future__ import annotations

import math

import torch

from torchstone import operators, schema
from torchstone.calls.draw_arguments import DrawnCall, overlaps
from torchstone.judging.plans.base import Plan, Policy, Positions, When
from torchstone.judging.plans.case_facts import CaseFacts
from torchstone.judging.plans.plan_randomness import PlanRng
from torchstone.judging.tail_bound import unlikelihood

DRAWS = 24
"""Number of reference draws. An element kept with p = 0.5 is absent from all 24 with probability 6e-8."""
_VALUE_ARGUMENT, _DROPOUT_ARGUMENT = "value", "dropout_p"
_WEIGHT_TOLERANCE = 2.0**-12
"""Relative error allowed for an element: more than sums in another order cause, less than a lower precision does."""
_EPS_TOLERANCE = 4.0
"""The same for dtypes of less than 4 bytes, in units of the dtype's eps, if that is more."""
_MOST_WRONG_SHARE = 1e-3
"""Largest share of elements with a larger error."""
_MOST_UNLIKELIHOOD = 30.0
"""Non-zero elements where all reference draws are 0 are an error if their probability is below exp(-this)."""


class OneKey(Plan):
    """One key for each head keeps its values; the values of all other keys become 0."""

    name = "lone"
    phrase = "all values were 0 but those of one key for each head"
    policy = Policy(When.RANDOM_RESULTS, Positions.IRRELEVANT)

    def applies(self, facts: CaseFacts) -> bool:
        place = _value_position(facts.case)
        return place is not None and 0.0 < _dropout_probability(facts.case) < 1.0 and not overlaps(facts.recipes[place])

    def allowed_in_timed_blocks(self, facts: CaseFacts, on_host: bool) -> bool:
        return False

    def write(self, call: DrawnCall, rng: PlanRng) -> None:
        place = _value_position(call.case)
        if place is None:
            return
        view = call.tensors[place].view
        heads = view.shape[:-2]
        kept = rng.below(view.shape[-2], math.prod(heads)).view(*heads, 1)
        seen = torch.arange(view.shape[-2]) == kept
        view.mul_(seen.unsqueeze(-1).to(view.dtype).to(view.device))


def dropout_mismatch_text(drawn: torch.Tensor, got: torch.Tensor) -> str | None:
    """A message about elements that are neither 0 nor the reference's number; None if there are too few of them.

    ``drawn``: :data:`DRAWS` results of the reference, stacked.
    """
    which = drawn.abs().argmax(dim=0, keepdim=True)
    kept = drawn.gather(0, which)[0].to(torch.float64)
    result, finite = got.to(torch.float64), torch.isfinite(kept)
    tolerance = max(_WEIGHT_TOLERANCE, _EPS_TOLERANCE * torch.finfo(got.dtype).eps if got.dtype.itemsize < 4 else 0.0)
    errors = torch.minimum(result.abs(), (result - kept).abs())
    has_kept_value = finite & (kept != 0.0)
    wrong = has_kept_value & ~(errors <= tolerance * kept.abs())
    if int(wrong.sum()) > _MOST_WRONG_SHARE * int(has_kept_value.sum()):
        worst = int(torch.where(wrong, errors.nan_to_num(nan=math.inf), -1.0).argmax())
        found = f"got {float(result.flatten()[worst]):.6g}, expected 0 or {float(kept.flatten()[worst]):.6g}"
        counted = f"{int(wrong.sum())} of {int(has_kept_value.sum())} elements"
        return f"{counted} are neither 0 nor the result of the one key; {found}"
    appeared = int((finite & (kept == 0.0) & (result != 0.0)).sum()) / got.shape[-1]
    if unlikelihood(appeared, _never_kept(drawn, has_kept_value) / got.shape[-1]) > _MOST_UNLIKELIHOOD:
        return f"{round(appeared)} rows are not 0, although they are 0 in all {len(drawn)} draws of torch"
    return None


def _never_kept(drawn: torch.Tensor, has_kept_value: torch.Tensor) -> float:
    """Upper estimate of the number of elements in which all reference draws are 0 by chance."""
    kept = float((drawn != 0)[:, has_kept_value].double().mean()) if bool(has_kept_value.any()) else 1.0
    missed = max(1.0 - kept, 1.0 / drawn.numel()) ** len(drawn)
    return missed * drawn[0].numel()


def _value_position(case: schema.Case) -> int | None:
    """Position of the tensor of values among a case's tensors; None if the case is not attention with drawn values."""
    if not operators.traits(case.operator).is_attention:
        return None
    for place, (name, recipe) in enumerate(operators.named_tensors(case)):
        drawn = isinstance(recipe.fill, schema.Normal | schema.Uniform)
        if name == _VALUE_ARGUMENT and drawn and len(recipe.shape) > 2 and 0 not in recipe.shape:
            return place
    return None


def _dropout_probability(case: schema.Case) -> float:
    given = dict(operators.named_arguments(case.operator, case.args, case.kwargs)).get(_DROPOUT_ARGUMENT)
    return float(given.value) if isinstance(given, schema.Scalar) and isinstance(given.value, int | float) else 0.0
