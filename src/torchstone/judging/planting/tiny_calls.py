"""Makes calls whose values are all tiny, as gradients often are, for operators whose results scale with their inputs.

``relu``, ``mul``, ``mm``, a sum: all arguments times 2**-k give the result times 2**-k, or 2**-2k. A kernel that takes
small values for zero would agree on usual values. Such a call is not planted but an ordinary call of the same case with
a smaller standard deviation, and its bound is as small. Other operators do not scale: ``elu`` computes ``exp(x) - 1``,
a norm adds eps. There honest formulas lose all digits of tiny arguments. So torch's own result must first be a power of
two times its result for usual values.

Of a gradient only the cotangents are scaled: gradients are linear in them.
"""

from __future__ import annotations

import math
import random

import msgspec
import torch

from torchstone import operators, schema
from torchstone.calls.random_arguments import DrawnCall, calls_on, draw_call
from torchstone.calls.reference_calls import ReferenceFailure, Tensors
from torchstone.calls.torch_errors import operator_errors
from torchstone.judging.plans.magnitudes import may_be_scaled
from torchstone.judging.reference.case_reference import Reference
from torchstone.judging.reference.expected import Expected

_EXPONENTS = (0.25, 0.36)
"""Share of the exponent of the dtype's largest number, from which the factor 2**-k is taken: squares stay normal."""
_MOST_EXPONENT = 200
"""Largest k for float64, in which bounds are computed: squares of products of such small numbers must not be 0."""
_NEAR = 1e-3
"""How closely results must scale, as a share of the largest result."""


class TinyCall:
    """A call of a case with tiny values, drawn but not yet evaluated by torch."""

    def __init__(self, reference: Reference, seed: int) -> None:
        exponent = _exponent(reference.case, random.Random(seed))
        case = _scaled(reference.case, -exponent)
        self._reference = Reference(case, reference.evaluator.device, reference.device, reference)
        self._reference.evaluator.foreseen = reference.evaluator.foreseen  # the operator is the same
        tiny = draw_call(case, seed, reference.device)
        self.calls = [] if case == reference.case else [tiny, _on_usual_scale(tiny, exponent)]
        """The tiny call, and a call with the same values on the usual scale. Empty if nothing is scaled."""

    def answered(self) -> list[Expected]:
        """The tiny call with its expected result, if torch's results scale; else nothing."""
        if not self.calls:
            return []
        try:
            tiny, *usual = self._reference.expect_many(self.calls)
        except ReferenceFailure:
            return []
        except operator_errors():
            return []
        return [tiny] if usual and _keeps_a_factor(tiny.native, usual[0].native) else []


def _exponent(case: schema.Case, random_: random.Random) -> int:
    dtypes = [operators.torch_dtype(recipe.dtype) for recipe in schema.tensors_of(case) if may_be_scaled(recipe)]
    largest = min(math.log2(torch.finfo(dtype).max) for dtype in dtypes)
    return min(_MOST_EXPONENT, round(largest * random_.uniform(*_EXPONENTS)))


def _scaled(case: schema.Case, exponent: int) -> schema.Case:
    if schema.is_gradient(case.operator):
        return msgspec.structs.replace(case, args=(_scaled_argument(case.args[0], exponent), *case.args[1:]))
    args = tuple(_scaled_argument(argument, exponent) for argument in case.args)
    kwargs = {name: _scaled_argument(argument, exponent) for name, argument in case.kwargs.items()}
    return msgspec.structs.replace(case, args=args, kwargs=kwargs)


def _scaled_argument(argument: schema.Argument, exponent: int) -> schema.Argument:
    match argument:
        case schema.Tensor(fill=schema.Normal() as fill) if may_be_scaled(argument):
            scaled = msgspec.structs.replace(fill, mean=fill.mean * 2.0**exponent, std=fill.std * 2.0**exponent)
            return msgspec.structs.replace(argument, fill=scaled)
        case schema.Sequence(items=items):
            return schema.Sequence(tuple(_scaled_argument(item, exponent) for item in items))
        case _:
            return argument


def _on_usual_scale(call: DrawnCall, exponent: int) -> DrawnCall:
    """The same values times a power of two, where they were drawn narrower."""
    usual = schema.tensors_of(_scaled(call.case, exponent))
    storages = [
        (tensor.storage * 2.0**exponent if tensor.recipe != recipe else tensor.storage).unsqueeze(0)
        for tensor, recipe in zip(call.tensors, usual, strict=True)
    ]
    return calls_on(call.case, storages, call.seed, 1, call.device)[0]


def _keeps_a_factor(tiny: Tensors, usual: Tensors) -> bool:
    """Whether torch's results are those of the same values on the usual scale, times a power of two."""
    if tiny.keys() != usual.keys():
        return False
    return all(_is_factor(tiny[place], usual[place]) for place in tiny)


def _is_factor(tiny: torch.Tensor, usual: torch.Tensor) -> bool:
    if tiny.shape != usual.shape or not usual.numel():
        return tiny.shape == usual.shape
    if not usual.is_floating_point():
        return torch.equal(tiny, usual)
    tiny, usual = tiny.double(), usual.double()
    most, least = float(usual.abs().amax()), float(tiny.abs().amax())
    if not (math.isfinite(most) and math.isfinite(least) and most > 0.0 and least > 0.0):
        return most == least == 0.0
    factor = 2.0 ** round(math.log2(most / least))
    return bool(((tiny * factor - usual).abs() <= _NEAR * most).all())
