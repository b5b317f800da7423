"""Table of values on which operators are defined: positive numbers for a logarithm, positive definite matrices."""

from __future__ import annotations

import re

from torchstone.schema import Fill, Integers, PositiveDefinite, Uniform
from torchstone.suites.recorded_call_text import TracedTensor
from torchstone.suites.valid_values.named_call import Fills, NamedCall
from torchstone.suites.valid_values.rule_table import BALANCED, INSIDE_UNIT, POSITIVE, SIGNED, UNIT, RuleTable

RULES = RuleTable()


RULES.always("log log2 log10 sqrt rsqrt lgamma digamma mvlgamma polygamma special_entr", "self", self=POSITIVE)
RULES.always("log1p", "self", self=Uniform(-0.875, 8.0))
RULES.always("asin acos atanh arcsin arccos arctanh", "self", self=Uniform(-0.984375, 0.984375))
RULES.always("erfinv special_ndtri", "self", self=Uniform(-0.984375, 0.984375))
RULES.always("acosh arccosh", "self", self=Uniform(1.015625, 8.0))
RULES.always("logit", "self eps", self=INSIDE_UNIT)
RULES.always("xlogy special_xlogy special_xlog1py", "self other", other=POSITIVE)
RULES.always("prod cumprod", "self dim", self=Uniform(0.75, 1.25))
RULES.always("lerp", "self end weight", weight=UNIT)
RULES.always("div divide true_divide floor_divide remainder fmod", "self other", other=POSITIVE)
RULES.always("addcdiv", "self tensor1 tensor2", tensor2=POSITIVE)
RULES.always("grid_sampler_2d grid_sampler_3d grid_sampler", "input grid", grid=BALANCED)
RULES.always("grid_sampler_2d_backward grid_sampler_3d_backward", "grad_output input grid", grid=BALANCED)
RULES.always("_foreach_sqrt _foreach_log _foreach_rsqrt", "self", self=POSITIVE)
RULES.always("_foreach_div", "self other", other=POSITIVE)
RULES.always("_foreach_addcdiv", "self tensor1 tensor2", tensor2=POSITIVE)


@RULES.of("pow float_power", "self exponent")
def _power(call: NamedCall) -> Fills:
    """Whole exponents from 0 accept every base, others positive ones. Integers to a negative power are an error."""
    exponent = call["exponent"]
    if isinstance(exponent, int | float):
        plain = float(exponent).is_integer() and exponent >= 0
        return {"self": (Integers(-9, 10) if call.is_whole("self") else SIGNED) if plain else POSITIVE}
    bases: Fill = Integers(-9, 10) if call.is_whole("self") else POSITIVE
    return {"self": bases, "exponent": Integers(0, 5) if call.is_whole("exponent") else BALANCED}


@RULES.of("bitwise_left_shift bitwise_right_shift __lshift__ __rshift__ __ilshift__ __irshift__", "self other")
def _shift(call: NamedCall) -> Fills:
    """Shifting by the width of the dtype or more is not defined."""
    value = call["self"]
    digits = re.search(r"\d+", value.dtype) if isinstance(value, TracedTensor) else None
    return {"other": Integers(0, int(digits.group()) if digits else 8)}


RULES.always("bernoulli", "self p", self=UNIT, p=UNIT)
RULES.always("multinomial", "self num_samples", self=Uniform(0.125, 1.0))
RULES.always("poisson", "self", self=POSITIVE)
RULES.always("normal", "mean std", std=POSITIVE)
RULES.always(
    "cholesky linalg_cholesky_ex linalg_cholesky cholesky_inverse linalg_inv_ex linalg_inv inverse _linalg_det "
    "_linalg_slogdet _linalg_eigh linalg_lu_factor_ex linalg_solve_triangular _linalg_solve_ex linalg_solve",
    "A B",
    A=PositiveDefinite(),
    self=PositiveDefinite(),
)
RULES.always("triangular_solve cholesky_solve", "self A", A=PositiveDefinite(), input2=PositiveDefinite())
