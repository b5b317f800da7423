"""Learns which forms of calls of an operator torch accepts, by trying them, and draws generated cases of these forms.

A form is a family of shapes of one rank, with the dtypes, layouts, values and other arguments that torch accepts with
it. Forms are learned once for each operator, on ordinary sizes, so that torch seldom refuses later draws of unusual
sizes. A drawn case still counts only if torch accepts it.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec
import torch

from torchstone import operators, schema
from torchstone.suites.memory_layouts import LAYOUTS, PLAIN, MemoryLayout, laid_out
from torchstone.suites.non_tensor_arguments import Declared, Setting, Way, declared_arguments
from torchstone.suites.random_choices import Choices, OrdinaryChoices
from torchstone.suites.recorded_call_text import TracedCall, TracedTensor, Value
from torchstone.suites.shape_families import FAMILIES, RANKS, Family, Shape, Shapes, Slot, broadcast, same, square
from torchstone.suites.torch_probe import TorchProbe
from torchstone.suites.valid_values import fills_for
from torchstone.suites.valid_values.rule_table import NUMBERS

T = TypeVar("T")

SUITE = "fuzz"
DTYPES = ("float32", "float16", "bfloat16", "int64", "bool")
_FLOATS = ("float64", "float32", "float16", "bfloat16")
_DOMAINS: tuple[schema.Fill, ...] = (
    schema.Normal(),
    schema.Uniform(0.125, 8.0),
    schema.Uniform(-0.984375, 0.984375),
    schema.Uniform(0.0078125, 0.9921875),
    schema.Uniform(1.015625, 8.0),
)
"""Ranges of values to try for floating-point arguments, from the most general to the most cautious."""
_MAX_NAN_SHARE = 0.02
"""Largest mean share of NaN in the results for a range of values to be used."""
_SIMPLEST_FORM_ATTEMPTS = 8
"""Combinations of ways of the arguments that are tried for the simplest form."""
_FORM_DRAWS, _SIMPLEST_FORM_DRAWS = 4, 8
"""Draws of a form, and of the simplest form. A form is accepted if torch refuses at most one of them."""


class Form(NamedTuple):
    """One way to call an operator, with all that may vary in it."""

    family: Family
    rank: int
    dtypes: tuple[str, ...]
    ways: Mapping[str, tuple[Way, ...]]
    """Argument -> its ways. Optional tensors have two: given and left out."""
    layouts: tuple[MemoryLayout, ...] = (PLAIN,)
    domain: schema.Fill = schema.Normal()
    """Range for floating-point arguments whose values no table of `valid_values` gives."""
    specials: bool = False
    """Whether the operator's results for infinities and NaN are defined."""


class Unfuzzable(Exception):  # noqa: N818 - an answer
    """No form was found for an operator; the text is the reason."""


class Operator(NamedTuple):
    """An operator and the forms in which it can be called."""

    name: str
    declared: tuple[Declared, ...]
    forms: tuple[Form, ...]

    @property
    def slots(self) -> tuple[Slot, ...]:
        return tuple(argument.slot for argument in self.declared if argument.slot is not None)


def learn(name: str, probe: TorchProbe, dtypes: Iterable[str] | None = None) -> Operator:
    """Find the forms in which torch accepts calls of the operator. Raises :class:`Unfuzzable` if there is none."""
    overload = operators.resolve(name)
    bare = Operator(name, declared_arguments(overload), ())
    _require_fuzzable(overload, bare)
    wanted = tuple(dtypes) if dtypes is not None else DTYPES
    forms: list[Form] = []
    for family, rank in itertools.product(FAMILIES, RANKS):
        base = None if _adds_nothing(bare, forms, family, rank) else _simplest_form(probe, bare, family, rank, wanted)
        if base is not None:
            forms.append(_widened(probe, bare, base, wanted, forms[0] if forms else None))
    if not forms:
        raise Unfuzzable(f"no call of it succeeded in {', '.join(wanted)}")
    return bare._replace(forms=tuple(forms))


def _require_fuzzable(overload: torch._ops.OpOverload, operator: Operator) -> None:
    if not operator.slots:
        raise Unfuzzable("it takes no tensor")
    if torch.Tag.inplace_view in overload.tags or (
        torch.Tag.dynamic_output_shape in overload.tags and not any(slot.role == "index" for slot in operator.slots)
    ):
        raise Unfuzzable("it has no results, or their shapes depend on values")
    if not fills_for(operator.name, TracedCall(())).jitter:
        raise Unfuzzable("torch does not check its index values")
    for argument in operator.declared:
        if argument.slot is None and not argument.ways:
            raise Unfuzzable(f"no value is known for its argument '{argument.name}' ({argument.type})")


# ---- learning


def _adds_nothing(operator: Operator, forms: Sequence[Form], family: Family, rank: int) -> bool:
    """Whether the family adds nothing: it has no shapes here, or earlier forms (`same`, `broadcast`) include them."""
    shapes = family(OrdinaryChoices(0), operator.slots, rank)
    if shapes is None:
        return True
    if not shapes.fixed.keys().isdisjoint(argument.name for argument in operator.declared):
        return False
    if len(operator.slots) == 1 and family is broadcast:
        return True
    known = {(form.family, form.rank) for form in forms}
    return (broadcast, rank) in known or (len(set(shapes.of.values())) == 1 and (same, rank) in known)


def _widened(probe: TorchProbe, operator: Operator, form: Form, dtypes: Sequence[str], first: Form | None) -> Form:
    """The form with all ways, dtypes and layouts that torch accepts.

    The range of values is learned once, for the operator's first form.
    """
    ways = {
        name: _accepted(ways, functools.partial(_accepts_way, probe, operator, form, name)) or form.ways[name]
        for name, ways in _every_way(operator).items()
    }
    taken = _accepted(dtypes, lambda dtype: _accepts(probe, operator, form._replace(dtypes=(dtype,))))
    layouts = _accepted(_layouts(operator), lambda layout: _accepts(probe, operator, form._replace(layouts=(layout,))))
    form = form._replace(ways=ways, dtypes=taken or form.dtypes, layouts=layouts or form.layouts)
    if first is not None:
        is_open = isinstance(form.domain, schema.Normal)
        return form._replace(domain=first.domain if is_open else form.domain, specials=first.specials)
    form = _with_domain(probe, operator, form)
    return form._replace(specials=_defines_specials(probe, operator, form))


def _simplest_form(
    probe: TorchProbe, operator: Operator, family: Family, rank: int, dtypes: Sequence[str]
) -> Form | None:
    """A form that torch accepts, with one way per argument and one dtype. None: torch accepts none that was tried."""
    every = _every_way(operator)
    choices = OrdinaryChoices(f"{operator.name} {family.__name__} {rank}")
    if family(choices, operator.slots, rank) is None:
        return None
    for attempt in range(_SIMPLEST_FORM_ATTEMPTS):
        ways = {name: (ways[0] if attempt == 0 else choices.one_of(ways),) for name, ways in every.items()}
        for dtype in _one_dtype_per_kind(dtypes):
            form = Form(family, rank, (dtype,), ways)
            if _accepts(probe, operator, form, _SIMPLEST_FORM_DRAWS):
                return form
        if all(len(ways) == 1 for ways in every.values()):
            break
    if family is not square:
        return None
    definite = Form(family, rank, tuple(dtypes[:1]), {name: ways[:1] for name, ways in every.items()})
    definite = definite._replace(domain=schema.PositiveDefinite())
    return definite if _accepts(probe, operator, definite) else None


def _one_dtype_per_kind(dtypes: Sequence[str]) -> tuple[str, ...]:
    """One dtype of each kind. If torch refuses one floating-point dtype, it probably refuses the others."""
    kinds = {"float" if dtype in _FLOATS else dtype: dtype for dtype in reversed(dtypes)}
    return tuple(reversed(kinds.values()))


def _every_way(operator: Operator) -> dict[str, tuple[Way, ...]]:
    """Argument -> all its ways. Optional tensors are given or left out."""
    found = {argument.name: argument.ways for argument in operator.declared if argument.slot is None}
    for slot in operator.slots:
        if slot.optional:
            found[slot.name] = _GIVEN, _LEFT_OUT
    return found


_GIVEN = Way("there", lambda choices, setting: True)
_LEFT_OUT = Way("left out", lambda choices, setting: None)


def _accepts_way(probe: TorchProbe, operator: Operator, form: Form, name: str, way: Way) -> bool:
    return _accepts(probe, operator, form._replace(ways={**form.ways, name: (way,)}))


def _accepted(options: Sequence[T], holds: Callable[[T], bool]) -> tuple[T, ...]:
    return tuple(option for option in options if holds(option))


def _accepts(probe: TorchProbe, operator: Operator, form: Form, tries: int = _FORM_DRAWS) -> bool:
    """Whether torch refuses at most one of the draws of the form."""
    choices = OrdinaryChoices(tries)
    refused = 0
    for seed in range(tries):
        case = draw_case(operator, form, choices)
        refused += case is None or not probe.takes(case, seed)
        if refused > 1:
            return False
    return True


def _layouts(operator: Operator) -> tuple[MemoryLayout, ...]:
    return LAYOUTS if _is_pointwise(operator) else LAYOUTS[:-1]


def _is_pointwise(operator: Operator) -> bool:
    return operators.traits(operator.name).pointwise


# ---- values


def _with_domain(probe: TorchProbe, operator: Operator, form: Form) -> Form:
    """The form with the most general range of values that gives at most 2 % NaN."""
    floats = tuple(dtype for dtype in form.dtypes if dtype in _FLOATS)
    if not floats or not isinstance(form.domain, schema.Normal):
        return form
    for domain in _DOMAINS:
        option = form._replace(domain=domain)
        if _share_of_nan(probe, operator, option._replace(dtypes=floats[:1])) <= _MAX_NAN_SHARE:
            return option
    return form


def _share_of_nan(probe: TorchProbe, operator: Operator, form: Form) -> float:
    choices = OrdinaryChoices(1)
    cases = (draw_case(operator, form, choices) for _ in range(2 * _FORM_DRAWS))
    shares = [probe.share_of_nan(case, seed) for seed, case in enumerate(cases) if case and probe.takes(case, seed)]
    return sum(shares) / len(shares) if shares else 1.0


def _defines_specials(probe: TorchProbe, operator: Operator, form: Form) -> bool:
    """Whether torch's results for special values are the same in every memory layout.

    torch's vectorized and scalar code may treat NaN and infinities differently.
    """
    floats = tuple(dtype for dtype in form.dtypes if dtype in _FLOATS)
    if not floats or not _is_pointwise(operator) or not isinstance(form.domain, schema.Normal):
        return False
    choices = OrdinaryChoices(2)
    for dtype in floats:
        for seed in range(_FORM_DRAWS):
            case = draw_case(operator, form._replace(dtypes=(dtype,), layouts=(PLAIN,)), choices)
            if case is not None and probe.takes(case, seed) and not probe.defines(with_specials(case), seed):
                return False
    return True


def with_specials(case: schema.Case) -> schema.Case:
    """The case with special values (NaN, infinity) among those of every normal distribution."""
    return _map_tensors(case, _with_special_values)


def _with_special_values(tensor: schema.Tensor) -> schema.Tensor:
    if isinstance(tensor.fill, schema.Normal) and tensor.dtype in _FLOATS:
        return msgspec.structs.replace(tensor, fill=msgspec.structs.replace(tensor.fill, specials=True))
    return tensor


# ---- drawing


def draw_case(operator: Operator, form: Form, choices: Choices) -> schema.Case | None:
    """A case of the form, which torch may refuse. None: the family has no shapes for these arguments."""
    shapes = form.family(choices, operator.slots, form.rank)
    if shapes is None:
        return None
    dtype = choices.one_of(form.dtypes)
    drawn: dict[str, Value] = {}
    for argument in operator.declared:
        drawn[argument.name] = _draw_argument(
            argument, form, shapes, dtype, Setting(shapes.main, dtype, drawn), choices
        )
    call = fills_for(operator.name, _call(operator, drawn))
    case = schema.Case(SUITE, operator.name, call.args, call.kwargs)
    case = _map_tensors(case, lambda tensor: _filled(tensor, form, shapes.main, dtype))
    if form.specials and choices.one_of((False, False, True)):
        case = with_specials(case)
    return _tagged(_with_layouts(operator, form, case, choices), form)


def _draw_argument(
    argument: Declared, form: Form, shapes: Shapes, dtype: str, setting: Setting, choices: Choices
) -> Value:
    slot = argument.slot
    if slot is None:
        if argument.name in shapes.fixed:
            return shapes.fixed[argument.name]
        return choices.one_of(form.ways[argument.name]).draw(choices, setting)
    if slot.optional and choices.one_of(form.ways[slot.name]) is _LEFT_OUT:
        return None
    whole = slot.role == "index" or slot.name in shapes.whole
    own = "int64" if whole else "bool" if slot.role == "mask" else dtype
    tensors = tuple(TracedTensor(shape, own) for shape in shapes.of[slot.name])
    return tensors if slot.listed else tensors[0]


def _call(operator: Operator, drawn: Mapping[str, Value]) -> TracedCall:
    """The call as a program would write it: without trailing defaults, and without keyword defaults."""
    positional = [argument for argument in operator.declared if not argument.keyword]
    while positional and positional[-1].has_default and _is_default(positional[-1], drawn):
        positional.pop()
    named = [argument for argument in operator.declared if argument.keyword]
    return TracedCall(
        tuple(drawn[argument.name] for argument in positional),
        {
            argument.name: drawn[argument.name]
            for argument in named
            if not (argument.has_default and _is_default(argument, drawn))
        },
    )


def _is_default(argument: Declared, drawn: Mapping[str, Value]) -> bool:
    value = drawn[argument.name]
    return type(value) is type(argument.default) and value == argument.default


def _filled(tensor: schema.Tensor, form: Form, main: Shape, dtype: str) -> schema.Tensor:
    """The tensor; where `valid_values` gives no fill, with the form's range or indices into the smallest dimension."""
    if tensor.fill == schema.Normal() and tensor.dtype in _FLOATS:
        return msgspec.structs.replace(tensor, fill=form.domain)
    if tensor.fill == NUMBERS and dtype != tensor.dtype:
        return msgspec.structs.replace(tensor, fill=schema.Integers(0, max(1, min(main, default=1))))
    return tensor


def _map_tensors(case: schema.Case, change: Callable[[schema.Tensor], schema.Tensor]) -> schema.Case:
    def changed(argument: schema.Argument) -> schema.Argument:
        match argument:
            case schema.Tensor():
                return change(argument)
            case schema.Sequence(items=items):
                return schema.Sequence(tuple(changed(item) for item in items))
            case _:
                return argument

    args = tuple(changed(argument) for argument in case.args)
    return msgspec.structs.replace(case, args=args, kwargs={name: changed(a) for name, a in case.kwargs.items()})


def _with_layouts(operator: Operator, form: Form, case: schema.Case, choices: Choices) -> schema.Case:
    """The case with random layouts of its tensors, seldom contiguous. A quarter of the cases stay contiguous."""
    if form.layouts == (PLAIN,) or (len(form.layouts) > 1 and choices.one_of((True, False, False, False))):
        return case
    written = operators.contract_of(case).mutated
    position = itertools.count()
    layouts = (*form.layouts, *form.layouts[2:])

    def placed(tensor: schema.Tensor) -> schema.Tensor:
        expandable = next(position) not in written
        return laid_out(tensor, choices.one_of(layouts), choices, expandable=expandable)

    return _map_tensors(case, placed)


def _tagged(case: schema.Case, form: Form) -> schema.Case:
    """The case with tags for its family of shapes, its layouts and its values."""
    tensors = schema.tensors_of(case)
    words = {
        form.family.__name__: True,
        "empty": any(0 in tensor.shape for tensor in tensors),
        "strided": any(tensor.strides is not None for tensor in tensors),
        "offset": any(tensor.offset for tensor in tensors),
        "special": any(isinstance(tensor.fill, schema.Normal) and tensor.fill.specials for tensor in tensors),
    }
    return msgspec.structs.replace(case, tags=tuple(word for word, holds in words.items() if holds))
