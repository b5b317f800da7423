"""Lists kinds of values for an operator's non-tensor arguments in generated cases, by the arguments' types and names.

A kind of value is called a way (``some dimensions``, ``none``). Which ways make valid calls is found out by calling
torch (`learned_call_forms`). The first is the simplest: the schema's default, if there is one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch

from torchstone.suites.random_choices import Choices
from torchstone.suites.recorded_call_text import TorchName, Value
from torchstone.suites.shape_families import Shape, Slot

_DIMENSIONS = {"dim", "dim0", "dim1", "dim2", "axis", "axis0", "axis1", "start_dim", "end_dim", "source", "destination"}
_LISTS_OF_DIMENSIONS = {"dim", "dims", "axis", "axes"}
_SIZES = {"size", "shape", "output_size"}
_INDICES = {"index", "indices"}
_MASKS = {"mask", "condition"}
_STRINGS = ("none", "tanh", "floor", "trunc", "sum", "mean", "prod", "amax", "amin", "ij", "xy", "linear", "lower")
"""Values of ATen's string arguments. All are tried for every operator with such an argument."""
_INTEGERS = (1, 2, -1, 0, 3)
_FRACTIONS = (0.5, -1.5, 2.5, 0.0)


class Setting(NamedTuple):
    """What is known about a call when one of its arguments is chosen."""

    main: Shape
    dtype: str
    """Dtype of the tensor arguments that are neither indices nor masks."""
    drawn: Mapping[str, Value]
    """Arguments before this one."""

    def size_along(self, name: str) -> int:
        """The size along the dimension that an earlier argument names."""
        dim = self.drawn.get(name, 0)
        rank = len(self.main)
        return self.main[dim] if isinstance(dim, int) and -rank <= dim < rank else 1


class Way(NamedTuple):
    """One kind of value of an argument."""

    name: str
    draw: Callable[[Choices, Setting], Value]


class Declared(NamedTuple):
    """An argument as the schema declares it."""

    name: str
    type: str
    keyword: bool
    """Whether it is keyword-only."""
    default: Value
    has_default: bool
    ways: tuple[Way, ...] = ()
    """Empty for a tensor, and for a type that has no known values."""
    slot: Slot | None = None


def declared_arguments(overload: torch._ops.OpOverload) -> tuple[Declared, ...]:
    """The arguments of an overload."""
    return tuple(_declared(argument) for argument in overload._schema.arguments)


def _declared(argument: torch._C.Argument) -> Declared:
    given = argument.has_default_value()
    default = _value(argument.default_value) if given else None
    kind = str(argument.real_type)
    plain = Declared(argument.name, kind, argument.kwarg_only, default, given)
    if "Tensor" in kind:
        return plain._replace(slot=_slot(argument, kind))
    ways = _ways(argument.name, kind)
    if given:
        others = (way for way in ways if way.name != str(default).lower())
        ways = Way("default", lambda choices, setting: default), *others
    return plain._replace(ways=ways)


def _slot(argument: torch._C.Argument, kind: str) -> Slot:
    written = argument.alias_info is not None and argument.alias_info.is_write
    role = "index" if argument.name in _INDICES else "mask" if argument.name in _MASKS else "value"
    return Slot(argument.name, "List[" in kind, kind.startswith("Optional["), written, role)  # type: ignore[arg-type]


def _value(default: object) -> Value:
    return tuple(default) if isinstance(default, list) else default  # type: ignore[return-value]


def _ways(name: str, kind: str) -> tuple[Way, ...]:
    if kind.startswith("Optional["):
        return Way("none", lambda choices, setting: None), *_ways(name, kind[len("Optional[") : -1])
    match kind:
        case "bool":
            return _way_per_value(False, True)
        case "number":
            return _one_of_way("whole", *_INTEGERS), Way("fraction", _fraction)
        case "float":
            return _float_ways(name)
        case "int" | "SymInt":
            return _integer_ways(name)
        case "List[int]" | "List[SymInt]":
            return _list_ways(name)
        case "str":
            return _way_per_value(*_STRINGS)
        case "ScalarType":
            return _way_per_value(*(TorchName("dtype", dtype) for dtype in ("float32", "float64", "int64")))
        case _:
            return ()


def _way_per_value(*values: Value) -> tuple[Way, ...]:
    """Each value is a way of its own: torch may take some and refuse others."""
    return tuple(_one_of_way(str(value).lower(), value) for value in values)


def _one_of_way(name: str, *values: Value) -> Way:
    return Way(name, lambda choices, setting: choices.one_of(values))


def _fraction(choices: Choices, setting: Setting) -> Value:
    """A fraction for floating-point tensors, otherwise a whole number: some operators refuse fractions there."""
    return choices.one_of(_FRACTIONS if "float" in setting.dtype else _INTEGERS)


def _float_ways(name: str) -> tuple[Way, ...]:
    if name == "eps":
        return (_one_of_way("small", 1e-5, 1e-3, 1e-6),)
    return _one_of_way("probability", 0.5, 0.25, 1.0), _one_of_way("any", 1.0, 2.0, *_FRACTIONS)


def _integer_ways(name: str) -> tuple[Way, ...]:
    if name in _DIMENSIONS:
        return (Way("dimension", _dimension),)
    match name:
        case "index":
            return (Way("place", lambda choices, setting: choices.whole(0, max(0, setting.size_along("dim") - 1))),)
        case "start" | "end":
            return (Way("position", lambda choices, setting: choices.whole(0, setting.size_along("dim"))),)
        case "length":
            return (Way("length", _length),)
        case "k":
            return (Way("count", lambda choices, setting: choices.whole(1, max(1, setting.size_along("dim")))),)
        case _:
            return (
                _one_of_way("one", 1),
                _one_of_way("few", 1, 2, 3),
                _one_of_way("flag", 0, 1, 2),
                _one_of_way("signed", 0, 1, -1, 2, -2),
            )


def _dimension(choices: Choices, setting: Setting) -> int:
    rank = max(1, len(setting.main))
    dimension: int = choices.one_of((*range(rank), *range(-rank, 0)))
    return dimension


def _length(choices: Choices, setting: Setting) -> int:
    start = setting.drawn.get("start", 0)
    begin = start if isinstance(start, int) else 0
    return choices.whole(0, max(0, setting.size_along("dim") - begin))


def _list_ways(name: str) -> tuple[Way, ...]:
    if name in _LISTS_OF_DIMENSIONS:
        return Way("some dimensions", _some_dimensions), Way("all dimensions", _permutation), _one_of_way("nothing", ())
    if name in _SIZES:
        return (
            Way("the same", lambda choices, setting: setting.main),
            Way("flat", lambda choices, setting: (math.prod(setting.main),)),
            _one_of_way("inferred", (-1,)),
            *(_integer_list(length, 1, 4) for length in (1, 2, 3)),
        )
    if name == "repeats":
        return (Way("repeats", lambda choices, setting: tuple(choices.whole(1, 3) for _ in setting.main)),)
    if name == "padding":
        return tuple(_integer_list(length, 0, 1) for length in (1, 2, 3))
    return tuple(_integer_list(length, 1, 2) for length in (1, 2, 3, 4))


def _integer_list(length: int, low: int, high: int) -> Way:
    return Way(f"{length} numbers", lambda choices, setting: tuple(choices.whole(low, high) for _ in range(length)))


def _some_dimensions(choices: Choices, setting: Setting) -> Shape:
    rank = len(setting.main)
    chosen = _permutation(choices, setting)[: choices.whole(1, max(1, rank))]
    return tuple(choices.one_of((dim, dim - rank)) for dim in chosen)


def _permutation(choices: Choices, setting: Setting) -> Shape:
    left = list(range(len(setting.main)))
    return tuple(left.pop(choices.whole(0, len(left) - 1)) for _ in range(len(left)))
