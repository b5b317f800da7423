"""Finds an operator's overload, what it changes and what it returns, and builds its arguments from recipes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import torch

from torchstone import gradient_operators, model_operators, schema
from torchstone.errors import UsageError
from torchstone.operator_categories import is_of


def resolve(operator: str) -> torch._ops.OpOverload:
    """The overload of a full name, such as ``aten.add.Tensor``. Raises UsageError if torch has none."""
    gradient_operators.register(operator)
    found: Any = torch.ops
    try:
        for part in operator.split("."):
            found = getattr(found, part)
    except AttributeError as error:
        raise UsageError(f"torch {torch.__version__} has no operator '{operator}'.") from error
    if not isinstance(found, torch._ops.OpOverload):
        raise UsageError(f"'{operator}' names no overload. Write it in full, for instance 'aten.add.Tensor'.")
    return found


def torch_dtype(name: str) -> torch.dtype:
    """The dtype of a name: ``float32`` -> ``torch.float32``."""
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise UsageError(f"unknown dtype '{name}'. Write torch's name without the prefix, for instance 'float32'.")
    return dtype


def _torch_constant(name: str, kind: type) -> Any:
    """torch's layout or memory format of a name: ``strided``, ``channels_last``."""
    found = getattr(torch, name, None)
    if not isinstance(found, kind):
        raise UsageError(f"torch {torch.__version__} has no {kind.__name__} '{name}'.")
    return found


@dataclass(frozen=True)
class Contract:
    """What an operator's schema promises about memory."""

    mutated: frozenset[int]
    """Positions, among all tensor arguments in order, of those that the operator writes to."""
    returned_arguments: tuple[int | None, ...]
    """For each declared return: the tensor argument that it *is* (in-place, out=), else None."""
    fresh: tuple[bool, ...]
    """For each declared return: whether it shares memory with no argument."""

    def promises_fresh(self, leaf: int) -> bool:
        """Whether a returned leaf has new memory. The leaves of a returned list share one declaration."""
        return bool(self.fresh) and self.fresh[min(leaf, len(self.fresh) - 1)]


def contract_of(case: schema.Case) -> Contract:
    """Read the contract for the arguments of this case from the operator's schema."""
    model_operators.register(case)
    # Torchstone's own operators (gradients, models) may be registered again.
    declared = (_cached_declaration if case.operator.startswith("aten.") else _declaration)(case.operator)
    undeclared = _undeclared_writes(case, declared.names)
    alias_to_position: dict[str, int] = {}
    mutated: set[int] = set(model_operators.written(case))
    for argument, positions in _positions(case, declared.names).items():
        if positions and argument in undeclared:
            mutated.update(positions)
        if positions and argument in declared.written:
            mutated.update(positions)
            alias_to_position.update(dict.fromkeys(declared.written[argument], positions.start))
    returned = tuple(_returned_argument(alias, alias_to_position) for alias in declared.returned)
    return Contract(frozenset(mutated), returned, tuple(alias is None for alias in declared.returned))


def argument_names(operator: str) -> tuple[str, ...]:
    """Names of the operator's arguments, in the order of its schema."""
    return (_cached_declaration if operator.startswith("aten.") else _declaration)(operator).names


class _Declaration(NamedTuple):
    """The parts of a schema that do not depend on the arguments of a case."""

    names: tuple[str, ...]
    written: dict[str, frozenset[str]]
    """Arguments that are written to, with the schema's names (alias sets) for their memory."""
    returned: tuple[Any, ...]
    """For each return, torch's alias information; None for new memory."""


def _declaration(operator: str) -> _Declaration:
    declared = resolve(operator)._schema
    aliases = {argument.name: argument.alias_info for argument in declared.arguments}
    written = {name: frozenset(alias.before_set) for name, alias in aliases.items() if alias and alias.is_write}
    return _Declaration(tuple(aliases), written, tuple(item.alias_info for item in declared.returns))


_cached_declaration = lru_cache(maxsize=4096)(_declaration)


def _positions(case: schema.Case, names: Sequence[str]) -> dict[str, range]:
    """For each argument, the positions of its tensors among all tensors of the case, in the case's order."""
    found: dict[str, range] = {}
    position = 0
    for name, recipe in (*zip(names, case.args, strict=False), *case.kwargs.items()):
        count = tensor_count(recipe)
        if name in names:
            found[name] = range(position, position + count)
        position += count
    return found


def _undeclared_writes(case: schema.Case, names: Sequence[str]) -> tuple[str, ...]:
    """Names of arguments that the operator writes to although its schema does not say so (running statistics)."""
    if not is_of(case.operator, "updates_statistics"):
        return ()
    training = dict(zip(names, case.args, strict=False)).get("training", case.kwargs.get("training"))
    return ("running_mean", "running_var") if training == schema.Scalar(True) else ()


def is_view(operator: str) -> bool:
    """Whether the operator always returns a view of an argument.

    Composed operators (``reshape``, ``contiguous``) declare the same, but may or may not return a view.
    """
    overload = resolve(operator)
    composed = torch._C._dispatch_has_kernel_for_dispatch_key(overload._name, "CompositeImplicitAutograd")
    return overload.is_view and not composed


_CPU_DISPATCH_KEYS = ("CPU", "CompositeExplicitAutograd", "CompositeImplicitAutograd")


def runs_on_the_host(operator: str) -> bool:
    """Whether torch's own operator has a CPU implementation; False for Torchstone's gradients and models."""
    if not operator.startswith("aten."):
        return False
    name = resolve(operator)._name
    return any(torch._C._dispatch_has_kernel_for_dispatch_key(name, key) for key in _CPU_DISPATCH_KEYS)


def named_arguments(
    operator: str, args: Sequence[schema.Argument], kwargs: Mapping[str, schema.Argument]
) -> list[tuple[str, schema.Argument]]:
    """The arguments of a call with their names in the operator's schema: positional first, then keyword."""
    declared = resolve(operator)._schema.arguments
    return [*zip((argument.name for argument in declared), args, strict=False), *kwargs.items()]


def named_tensors(case: schema.Case) -> list[tuple[str, schema.Tensor]]:
    """A case's tensors, in their order, each with the name of its argument (the list's, for a tensor in a list)."""
    given = named_arguments(case.operator, case.args, case.kwargs)
    within = ((name, schema.tensors_of(schema.Case("", case.operator, (argument,)))) for name, argument in given)
    return [(name, recipe) for name, recipes in within for recipe in recipes]


def accumulates(
    operator: str, args: Sequence[schema.Argument], kwargs: Mapping[str, schema.Argument] | None = None
) -> bool:
    """Whether a call combines several writes to one element (adds, multiplies, takes the maximum)."""
    given = dict(named_arguments(operator, args, kwargs or {}))
    return (
        given.get("accumulate") == schema.Scalar(True)
        or ("reduce" in given and given["reduce"] != schema.Scalar(None))
        or is_of(operator, "adds")
    )


def tensor_count(recipe: schema.Argument | None) -> int:
    """Number of tensors in an argument, those in lists included."""
    if isinstance(recipe, schema.Tensor):
        return 1
    if isinstance(recipe, schema.Sequence):
        return sum(tensor_count(item) for item in recipe.items)
    return 0


def _returned_argument(alias: Any, alias_to_position: dict[str, int]) -> int | None:
    if alias is None or not alias.is_write:
        return None
    return next((alias_to_position[name] for name in alias.before_set if name in alias_to_position), None)


def build_arguments(
    case: schema.Case, tensors: Sequence[torch.Tensor], device: torch.device
) -> tuple[list[Any], dict[str, Any]]:
    """The call's arguments, with the given tensors instead of their recipes (in the order of ``schema.tensors_of``)."""
    source = iter(tensors)
    args = [_build(recipe, source, device) for recipe in case.args]
    kwargs = {name: _build(recipe, source, device) for name, recipe in case.kwargs.items()}
    return args, kwargs


def _build(recipe: schema.Argument, source: Iterator[torch.Tensor], device: torch.device) -> Any:
    match recipe:
        case schema.Tensor():
            return next(source)
        case schema.Scalar(value=value):
            return value
        case schema.NonFinite(value=text):
            return float(text)
        case schema.Complex(real=real, imaginary=imaginary):
            return complex(real, imaginary)
        case schema.DType(value=name):
            return torch_dtype(name)
        case schema.Layout(value=name):
            return _torch_constant(name, torch.layout)
        case schema.MemoryFormat(value=name):
            return _torch_constant(name, torch.memory_format)
        case schema.JudgedDevice():
            return device
        case schema.Sequence(items=items):
            return [_build(item, source, device) for item in items]


def storage_extent(recipe: schema.Tensor) -> int:
    """Elements of storage that the recipe's view spans, its offset included."""
    if 0 in recipe.shape:
        return recipe.offset
    strides = recipe.strides if recipe.strides is not None else contiguous_strides(recipe.shape)
    return recipe.offset + 1 + sum((size - 1) * stride for size, stride in zip(recipe.shape, strides, strict=True))


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides, as torch gives them to a fresh tensor."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def view_of(storage: torch.Tensor, recipe: schema.Tensor) -> torch.Tensor:
    """The recipe's view onto a flat storage of ``storage_extent`` elements."""
    strides = recipe.strides if recipe.strides is not None else contiguous_strides(recipe.shape)
    return storage.as_strided(recipe.shape, strides, storage.storage_offset() + recipe.offset)


def flatten_outputs(result: Any) -> list[Any]:
    """What a call returned as a flat list: tensors and plain values, tuples and lists opened."""
    if isinstance(result, (list, tuple)):
        return [leaf for item in result for leaf in flatten_outputs(item)]
    return [result]
