"""Makes a case from a recorded call: finds values that torch accepts, and marks cases that a trivial kernel passes.

The judge draws new values for a recorded call. Most arguments take any values. Some are indices, some must be positive,
some describe the layout of others. Choices of values (fills) are tried from the most general to the most cautious. A
choice is accepted if torch accepts several draws of it, with every index as large and as small as it may be. It must
give hardly more NaN than the recorded call. Only a few operators are listed by name.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import msgspec
import torch

from torchstone import operators, schema
from torchstone.calls.draw_arguments import draw_call
from torchstone.calls.random_or_undefined_results import FEW_RANDOM_ELEMENTS
from torchstone.calls.reference_calls import Evaluator, ReferenceFailure, is_continuous
from torchstone.errors import UsageError
from torchstone.operator_categories import base_name, is_of
from torchstone.suites.recorder import MOST_GIVEN, RecordedCall, ValueProperties

_SEEDS = (11, 23, 47)
_MORE_SEEDS = tuple(range(100, 112))
"""More seeds for small cases, in which three draws show little of what later draws may give."""
_SMALL_CASE_ELEMENTS = 64
"""Elements of all arguments up to which a case counts as small."""
_MAX_EXTRA_NAN_SHARE = 0.02
"""How much the share of NaN may exceed that of the recorded call."""
_FLOATS = ("float64", "float32", "float16", "bfloat16", "complex64", "complex128", "complex32")
_NOTHING_TO_JUDGE = {
    "_conj": "it only sets the conjugate or negative bit of a view, and computes no values",
    "_neg_view": "it only sets the conjugate or negative bit of a view, and computes no values",
    "_ctc_loss": "parts of its second result are working memory, whose content is undefined",
}

_STATE = "one of its results is the state of a random generator, which PyTorch does not specify"
_LAST_WINS = "where indices repeat, PyTorch does not specify on a GPU which value is written last"
_NOTHING_TO_JUDGE_ON = {
    "cuda": {
        "_flash_attention_forward": _STATE,
        "_efficient_attention_forward": _STATE,
        "_cudnn_attention_forward": _STATE,
        "_scaled_dot_product_flash_attention": _STATE,
        "_scaled_dot_product_efficient_attention": _STATE,
        "_scaled_dot_product_cudnn_attention": _STATE,
        "_embedding_bag_forward_only": "parts of its third result are working memory, whose content is undefined",
        "max_unpool2d": _LAST_WINS,
        "max_unpool3d": _LAST_WINS,
        "nll_loss2d_forward": "without a reduction its second result is not written; with one it is summed by atomics "
        "in the dtype of the result",
    }
}

GIVEN_VALUES = "its arguments have the same values in every call, so the result can be precomputed"
ONE_ELEMENT = "the result has one element: its mean, a copy of an input or a guess may be right"
NO_ELEMENT = "the result has no elements: only its structure, dtype and shape are judged"
CONSTANT = "the result, or a part of it, does not depend on the values of the arguments"
UNIFORM = "all elements of a result are equal, so a result filled with their mean is right"
COPY = "the right result is a copy of an argument"
FEW = "the result has so few elements that a guess may be right"
UNDEFINED = "its values are undefined: only structure, dtype and shape are judged"
TOO_FEW_DRAWS = "too few random numbers to judge their distribution"
_FEW_FLOATS, _FEW_INTEGERS = 4, 16
"""Elements below which a floating-point result, or an integer or bool result, is too small to judge."""


class Unfit(Exception):  # noqa: N818 - an answer: this call cannot be judged on fresh values
    """No case can be made of a call; the text is the reason."""


class Domain(msgspec.Struct, frozen=True):
    """The range of the values of one argument of an operator, over all calls that were recorded."""

    least: float
    greatest: float


Domains = Mapping[tuple[str, int], Domain]
"""(operator, position among the tensor arguments) -> domain."""


def domains_of(calls: Iterable[RecordedCall]) -> dict[tuple[str, int], Domain]:
    """The range of each argument's values, over all calls of an operator: one small sample shows too little of it."""
    found: dict[tuple[str, int], Domain] = {}
    for call in calls:
        for position, properties in enumerate(call.properties):
            if properties.seen and properties.least <= properties.greatest:
                key = call.operator, position
                known = found.get(key, Domain(properties.least, properties.greatest))
                found[key] = Domain(min(known.least, properties.least), max(known.greatest, properties.greatest))
    return found


class KnownChoice(msgspec.Struct, frozen=True):
    """A fill for each tensor of a call, from the tables of `valid_values`. :func:`fit` tries this choice first."""

    fills: tuple[schema.Fill, ...]
    jitter: bool = True


def fit(
    call: RecordedCall,
    suite: str,
    domains: Domains,
    device: torch.device,
    *,
    cautious: bool = False,
    known: KnownChoice | None = None,
) -> schema.Case:
    """The recorded call as a case, with the first choice of fills that torch accepts. Raises :class:`Unfit` if none is.

    A choice has a fill (how values are drawn) for each tensor. Choices go from normal values to the recorded ones. Each
    is tried by calling torch's operator. ``cautious``: keep the recorded integers, for operators that crash on others.
    ``known``: a choice to try first.
    """
    name = base_name(call.operator)
    reason = _NOTHING_TO_JUDGE.get(name, "") or _NOTHING_TO_JUDGE_ON.get(call.device, {}).get(name, "")
    if reason:
        raise Unfit(reason)
    cases = (_case(call, suite, fills) for fills in _choices(call, domains, cautious=cautious))
    for case in cases if known is None else chain((_known_case(call, suite, known),), cases):
        try:
            problem = _rejection(case, call, device)
        except (ReferenceFailure, UsageError) as error:
            problem = str(error)
        if problem is None:
            return _with_excuse(case, device)
        reason = problem
    raise Unfit(reason)


def choices(call: RecordedCall, suite: str) -> Iterator[schema.Case]:
    """The cases that :func:`fit` tries, most general first, without `indistinct`. For calls too large to try often."""
    return (_case(call, suite, fills) for fills in _choices(call, {}, cautious=False))


# ---- choices


def _choices(call: RecordedCall, domains: Domains, *, cautious: bool) -> Iterator[tuple[schema.Fill, ...]]:
    """Yield a fill for every tensor, from the most general choice to the most cautious one, each choice once."""
    recipes = _recipes(call)
    # On parallel devices, equal indices are a race. Recorded indices are distinct where that matters.
    cautious = cautious or is_of(call.operator, "trusts_indices") or (call.device != "cpu" and _wants_distinct(call))
    sizes = sorted({size for recipe in recipes for size in recipe.shape})
    integer_fills: list[Callable[[int], schema.Fill]] = [
        lambda i: _indices_or_range(call, i, recipes[i], call.properties[i], sizes),
        lambda i: _recorded_range(recipes[i], call.properties[i]),
        lambda i: _recorded_values(recipes[i], call.properties[i]) or _recorded_range(recipes[i], call.properties[i]),
    ]
    float_fills: list[Callable[[int], schema.Fill]] = [
        lambda i: _definite_or_normal(recipes[i], call.properties[i]),
        lambda i: _in_domain(recipes[i], domains.get((call.operator, i))),
    ]
    pairs = [(w, r) for w in (integer_fills[2:] if cautious else integer_fills) for r in float_fills]
    seen: set[str] = set()
    for integer_fill, float_fill in pairs:
        fills = tuple((float_fill if recipe.dtype in _FLOATS else integer_fill)(i) for i, recipe in enumerate(recipes))
        key = schema.content_key(fills)
        if key not in seen:
            seen.add(key)
            yield fills
    fixed = [_recorded_values(recipe, properties) for recipe, properties in zip(recipes, call.properties, strict=True)]
    if all(fill is not None for fill in fixed) and schema.content_key(tuple(fixed)) not in seen:
        yield tuple(fill for fill in fixed if fill is not None)


def _indices_or_range(
    call: RecordedCall, position: int, recipe: schema.Tensor, properties: ValueProperties, sizes: Sequence[int]
) -> schema.Fill:
    """Indices into the smallest dimension that holds all recorded values; else integers of the recorded range."""
    if recipe.dtype == "bool":
        return schema.Booleans()
    larger = (size for size in sizes if size > properties.greatest)
    high = next(larger, None) if properties.seen and properties.least >= 0 else None
    if high is None:
        return _recorded_range(recipe, properties)
    if _wants_distinct(call) and high >= (recipe.shape[-1] if recipe.shape else 1):
        return schema.SortedIntegers(0, high)
    return schema.Integers(0, high)


def _wants_distinct(call: RecordedCall) -> bool:
    """Whether indices must be distinct: of two writes to one element either may win, unless they are added."""
    return is_of(call.operator, "last_write_wins") and not operators.accumulates(call.operator, call.args, call.kwargs)


def _recorded_range(recipe: schema.Tensor, properties: ValueProperties) -> schema.Fill:
    """Integers between the least and the greatest recorded value; 0 and 1 if none was recorded."""
    if recipe.dtype == "bool":
        return schema.Booleans()
    if not properties.seen:
        return schema.Integers(0, 2)
    return schema.Integers(int(properties.least), int(properties.greatest) + 1)


def _recorded_values(recipe: schema.Tensor, properties: ValueProperties) -> schema.Fill | None:
    """The recorded values themselves. None: they are unknown or too many. A tensor without elements takes any fill."""
    if 0 in recipe.shape:
        return schema.Normal() if recipe.dtype in _FLOATS else _recorded_range(recipe, ValueProperties())
    if properties.values is None or len(properties.values) > MOST_GIVEN:
        return None
    return schema.Given(properties.values)


def _definite_or_normal(recipe: schema.Tensor, properties: ValueProperties) -> schema.Fill:
    return schema.PositiveDefinite() if properties.definite else schema.Normal()


def _in_domain(recipe: schema.Tensor, domain: Domain | None) -> schema.Fill:
    if domain is None or not domain.least < domain.greatest:
        return schema.Uniform(0.0, 1.0)
    return schema.Uniform(domain.least, domain.greatest)


# ---- trying


def _rejection(case: schema.Case, call: RecordedCall, device: torch.device) -> str | None:
    """Why this choice of fills is rejected; None: it is accepted. Raises torch's error if torch refuses the call."""
    for extreme in _extremes(case):
        _results(extreme, _SEEDS[0], device)
    elements = sum(operators.storage_extent(recipe) for recipe in schema.tensors_of(case))
    seeds = (*_SEEDS, *_MORE_SEEDS) if elements <= _SMALL_CASE_ELEMENTS else _SEEDS
    share = max(share_of_nan(case, seed, device) for seed in seeds)
    if share > call.unnumbered + _MAX_EXTRA_NAN_SHARE:
        return f"{share:.0%} of the results are NaN for all values that were tried"
    return None


def _extremes(case: schema.Case) -> Iterator[schema.Case]:
    """The case with the largest possible value for every integer, and with the smallest. None without `Integers`."""
    if any(isinstance(recipe.fill, schema.Integers) for recipe in schema.tensors_of(case)):
        yield _refilled(case, [_ends(recipe.fill)[1] for recipe in schema.tensors_of(case)])
        yield _refilled(case, [_ends(recipe.fill)[0] for recipe in schema.tensors_of(case)])


def _ends(fill: schema.Fill) -> tuple[schema.Fill, schema.Fill]:
    if isinstance(fill, schema.Integers) and fill.low < fill.high:
        return schema.Integers(fill.low, fill.low + 1), schema.Integers(fill.high - 1, fill.high)
    return fill, fill


def share_of_nan(case: schema.Case, seed: int, device: torch.device) -> float:
    """The largest share of NaN in a result of one call. Raises torch's error if torch refuses the call."""
    worst = 0.0
    for tensor in _results(case, seed, device):
        if tensor.is_floating_point() or tensor.is_complex():
            worst = max(worst, float(tensor.isnan().double().mean()))
    return worst


def _results(case: schema.Case, seed: int, device: torch.device) -> list[torch.Tensor]:
    """The tensors that one call returns or writes, without those that have no elements."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        evaluation = Evaluator(case, device).native([draw_call(case, seed, device)])
    if evaluation is None:
        return []
    return [tensor for tensor in evaluation.tensors.values() if tensor.numel()]


# ---- the case


def _recipes(call: RecordedCall) -> tuple[schema.Tensor, ...]:
    return schema.tensors_of(schema.Case("", call.operator, call.args, call.kwargs))


def _case(call: RecordedCall, suite: str, fills: Sequence[schema.Fill]) -> schema.Case:
    fixed = any(isinstance(fill, schema.Given) for fill in fills)
    fixed = fixed or is_of(call.operator, "fails_on_variants") or is_of(call.operator, "takes_scales")
    case = schema.Case(suite, call.operator, call.args, call.kwargs, jitter=not fixed, occurrences=call.count)
    return _refilled(case, fills)


def _known_case(call: RecordedCall, suite: str, known: KnownChoice) -> schema.Case:
    case = _case(call, suite, known.fills)
    return msgspec.structs.replace(case, jitter=case.jitter and known.jitter)


def _refilled(case: schema.Case, fills: Sequence[schema.Fill]) -> schema.Case:
    source = iter(fills)

    def filled(argument: schema.Argument) -> schema.Argument:
        match argument:
            case schema.Tensor():
                return msgspec.structs.replace(argument, fill=next(source))
            case schema.Sequence(items=items):
                return schema.Sequence(tuple(filled(item) for item in items))
            case _:
                return argument

    args = tuple(filled(argument) for argument in case.args)
    kwargs = {name: filled(argument) for name, argument in case.kwargs.items()}
    return msgspec.structs.replace(case, args=args, kwargs=kwargs)


def _with_excuse(case: schema.Case, device: torch.device) -> schema.Case:
    reason = excuse(case, device)
    return msgspec.structs.replace(case, indistinct=reason) if reason else case


def excuse(case: schema.Case, device: torch.device) -> str:
    """Why a trivial kernel may pass the case, as far as a few draws show; empty: no reason was found."""
    draws = [_draw(case, seed, device) for seed in _SEEDS]
    return next((reason for reason, holds in _EXCUSES.items() if holds(case, draws)), "")


class _Draw(NamedTuple):
    inputs: list[torch.Tensor]
    results: list[torch.Tensor]
    """Results that have elements."""


def _draw(case: schema.Case, seed: int, device: torch.device) -> _Draw:
    inputs = [tensor.view.clone() for tensor in draw_call(case, seed, device).tensors]
    return _Draw(inputs, [result[0] for result in _results(case, seed, device)])


def _is_empty(case: schema.Case, draws: Sequence[_Draw]) -> bool:
    return not any(draw.results for draw in draws)


def _has_one_element(case: schema.Case, draws: Sequence[_Draw]) -> bool:
    return any(result.numel() == 1 for draw in draws for result in draw.results)


def _has_only_fixed_values(case: schema.Case, draws: Sequence[_Draw]) -> bool:
    tensors = [tensor for tensor in schema.tensors_of(case) if 0 not in tensor.shape]
    return bool(tensors) and all(isinstance(tensor.fill, schema.Given) for tensor in tensors)


def _is_constant(case: schema.Case, draws: Sequence[_Draw]) -> bool:
    """Whether some result is the same in every draw."""
    return _in_every_draw(draws, lambda draw, place: _equal_bits(draw.results[place], draws[0].results[place]))


def _is_uniform(case: schema.Case, draws: Sequence[_Draw]) -> bool:
    return _in_every_draw(
        draws, lambda draw, place: bool((draw.results[place] == draw.results[place].flatten()[0]).all())
    )


def _is_copied(case: schema.Case, draws: Sequence[_Draw]) -> bool:
    """Whether some result is a copy of an argument, converted to the result's dtype."""

    def copied(draw: _Draw, place: int) -> bool:
        result = draw.results[place]
        return any(_equal_bits(result, given.to(result.dtype)) for given in draw.inputs if given.shape == result.shape)

    return _in_every_draw(draws, copied)


def _has_few_elements(case: schema.Case, draws: Sequence[_Draw]) -> bool:
    results = [result for draw in draws for result in draw.results]
    return any(result.numel() < (_FEW_FLOATS if is_continuous(result.dtype) else _FEW_INTEGERS) for result in results)


def _is_undefined(case: schema.Case, draws: Sequence[_Draw]) -> bool:
    return is_of(case.operator, "asks_for_memory")


def _has_few_random_elements(case: schema.Case, draws: Sequence[_Draw]) -> bool:
    drawn = operators.traits(case.operator).may_draw
    return drawn and any(result.numel() < FEW_RANDOM_ELEMENTS for draw in draws for result in draw.results)


def _in_every_draw(draws: Sequence[_Draw], holds: Callable[[_Draw, int], bool]) -> bool:
    """Whether some result has the property in each of the draws."""
    count = min(len(draw.results) for draw in draws)
    return any(all(holds(draw, place) for draw in draws) for place in range(count))


_EXCUSES: Mapping[str, Callable[[schema.Case, Sequence[_Draw]], bool]] = {
    NO_ELEMENT: _is_empty,
    UNDEFINED: _is_undefined,
    ONE_ELEMENT: _has_one_element,
    TOO_FEW_DRAWS: _has_few_random_elements,
    FEW: _has_few_elements,
    GIVEN_VALUES: _has_only_fixed_values,
    CONSTANT: _is_constant,
    UNIFORM: _is_uniform,
    COPY: _is_copied,
}


def _equal_bits(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether shape, dtype and all bits are equal. So NaN equals itself, and every dtype can be compared."""
    alike = first.shape == second.shape and first.dtype == second.dtype
    return alike and torch.equal(_bits(first), _bits(second))


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.clone(memory_format=torch.contiguous_format).reshape(-1).view(torch.uint8)
