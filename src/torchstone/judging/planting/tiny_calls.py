"""Makes calls whose values are all tiny, as gradients often are, for operators whose results scale with their inputs.

For ``relu``, ``mul``, ``mm`` or a sum, arguments times 2**-k give the result times 2**-k or 2**-2k. A kernel that
treats small values as zero would agree on usual values. Nothing is planted: it is an ordinary call of the same case
with a smaller standard deviation, so its error bound is small too. Other operators do not scale: ``elu`` computes
``exp(x) - 1``, a norm adds eps, and honest formulas lose all digits of tiny arguments. So the call is used only if
torch's own result is a power of two times its result for usual values.

For a gradient only the cotangents are scaled: gradients are linear in them.
"""

from __future__ import annotations

import math
import random

import msgspec
import torch

from torchstone import operators, schema
from torchstone.calls.draw_arguments import DrawnCall, calls_on, draw_call
from torchstone.calls.reference_calls import ReferenceFailure, Tensors
from torchstone.calls.torch_errors import operator_errors
from torchstone.judging.plans.magnitudes import may_be_scaled
from torchstone.judging.reference.case_reference import Reference
from torchstone.judging.reference.expected import Expected

_EXPONENT_SHARES = (0.25, 0.36)
"""Range of k, as a share of the exponent of the dtype's largest number. Squares of the values stay normal numbers."""
_MOST_EXPONENT = 200
"""Largest k, for float64. Bounds are computed in float64, where squares of products of the values must not be 0."""
_SCALING_TOLERANCE = 1e-3
"""Largest difference between the results after scaling, as a share of the largest result."""


class TinyCall:
    """A call of a case with tiny values, drawn but not yet evaluated by torch."""

    def __init__(self, reference: Reference, seed: int) -> None:
        exponent = _exponent(reference.case, random.Random(seed))
        case = _scaled(reference.case, -exponent)
        self._reference = Reference(case, reference.evaluator.device, reference.device, reference)
        self._reference.evaluator.precomputed = reference.evaluator.precomputed  # the operator is the same
        tiny = draw_call(case, seed, reference.device)
        self.calls = [] if case == reference.case else [tiny, _on_usual_scale(tiny, exponent)]
        """The tiny call, and a call with the same values times 2**k. Empty if no argument can be scaled."""

    def expected_results(self) -> list[Expected]:
        """The tiny call with its expected result, if torch's results scale; else nothing."""
        if not self.calls:
            return []
        try:
            tiny, *usual = self._reference.expect_many(self.calls)
        except ReferenceFailure:
            return []
        except operator_errors():
            return []
        return [tiny] if usual and _are_scaled(tiny.native, usual[0].native) else []


def _exponent(case: schema.Case, random_: random.Random) -> int:
    dtypes = [operators.torch_dtype(recipe.dtype) for recipe in schema.tensors_of(case) if may_be_scaled(recipe)]
    largest = min(math.log2(torch.finfo(dtype).max) for dtype in dtypes)
    return min(_MOST_EXPONENT, round(largest * random_.uniform(*_EXPONENT_SHARES)))


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
    """The call with the values that were scaled down multiplied by 2**exponent."""
    usual = schema.tensors_of(_scaled(call.case, exponent))
    storages = [
        (tensor.storage * 2.0**exponent if tensor.recipe != recipe else tensor.storage).unsqueeze(0)
        for tensor, recipe in zip(call.tensors, usual, strict=True)
    ]
    return calls_on(call.case, storages, call.seed, 1, call.device)[0]


def _are_scaled(tiny: Tensors, usual: Tensors) -> bool:
    """Whether each of torch's results for tiny values is a power of two times its result for usual values."""
    if tiny.keys() != usual.keys():
        return False
    return all(_is_scaled(tiny[place], usual[place]) for place in tiny)


def _is_scaled(tiny: torch.Tensor, usual: torch.Tensor) -> bool:
    if tiny.shape != usual.shape or not usual.numel():
        return tiny.shape == usual.shape
    if not usual.is_floating_point():
        return torch.equal(tiny, usual)
    tiny, usual = tiny.double(), usual.double()
    most, least = float(usual.abs().amax()), float(tiny.abs().amax())
    if not (math.isfinite(most) and math.isfinite(least) and most > 0.0 and least > 0.0):
        return most == least == 0.0
    factor = 2.0 ** round(math.log2(most / least))
    return bool(((tiny * factor - usual).abs() <= _SCALING_TOLERANCE * most).all())
