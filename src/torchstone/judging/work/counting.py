"""How much work a case is: the bytes that any kernel must move, and its arithmetic.

Counted from the case and torch's own operator on tensors without memory, never from a candidate. So a candidate
cannot come closer to the limit by doing less, or seem busier by doing more. Everything here is a lower bound, as far
as torch's schema tells. Work that depends on the values (which rows an index touches) is bounded by the size of the
result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch

from torchstone import operators, schema
from torchstone.calls.evaluation import OPERATOR_ERRORS
from torchstone.judging.work.attention_flops import attention_formulas

_READ_THROUGH_INDICES = frozenset(
    {"embedding", "embedding_bag", "gather", "index", "_unsafe_index", "index_select", "take", "take_along_dim"}
)
"""Operators that read of their first tensor only what indices point at: at most as many elements as they return."""
_WRITTEN_THROUGH_INDICES = frozenset(
    {"index_add_", "index_copy_", "index_put_", "index_reduce_", "put_", "scatter_", "scatter_add_", "scatter_reduce_"}
)
"""Operators that touch of the tensor they change only what indices point at: at most as many elements as come in."""
_INCOMING = ("src", "source", "values", "index")
"""How torch's schemas name what comes in, best first."""
_OVERWRITING = frozenset(
    {
        *("copy_", "fill_", "zero_", "index_copy_", "index_put_", "put_", "scatter_"),
        *("bernoulli_", "exponential_", "normal_", "random_", "uniform_"),
    }
)
"""Operators that change a tensor without looking at what it held, or need not look."""
_COPYING = frozenset({"clone", "copy", "copy_", "_to_copy", "contiguous", "fill", "fill_", "zero", "zero_"})
"""Operators that torch calls pointwise although they calculate nothing."""
_MORE_THAN_A_PASS = frozenset(
    {
        *("attention", "rnn", "lstm", "gru", "cdist", "pdist", "bilinear", "trilinear", "ctc", "fft"),
        *("mm", "bmm", "addmm", "addbmm", "baddbmm", "matmul", "einsum", "tensordot"),
        *("sort", "argsort", "msort", "unique", "mode"),
    }
)
"""Words in names of operators that calculate, or compare, more than once for each element."""
_ONLY_MOVING = frozenset({"fftshift", "ifftshift", "fftfreq", "rfftfreq"})
"""Words in names of operators that do not, though their names have one of the words above."""
_REAL_PER_COMPLEX = 4
"""A complex product and sum take four real products and four real sums; torch's formulas count one of each."""


class Work(NamedTuple):
    """What one call of a case must do at least."""

    read_bytes: int
    """Of every argument that is read, each element once."""
    written_bytes: int
    """Of every new result and every argument that is written to, each element once."""
    updated_bytes: int
    """How many of both are read and written in the same place."""
    flops: int
    flops_counted: schema.FlopCount
    dtype: str | None
    """Of the arithmetic: the widest floating-point dtype among the tensors; None without any."""


_NO_WORK = Work(0, 0, 0, 0, "none", None)


def work_of(case: schema.Case, new: Sequence[torch.Tensor] | None = None) -> Work:
    """Count the work of a case. Depends on nothing but the case and the version of torch.

    `new` are torch's own results in memory of their own, if there are any. Only their shapes are used. They save a
    call on the meta device, whose first use in a process takes seconds.
    """
    if operators.is_view(case.operator):
        return _NO_WORK
    results = new if new is not None else _results_without_memory(case)
    tensors = list(_tensors(case))
    changed = [tensor for argument, tensor in tensors if _is_written(argument)]
    if results is not None and not results and not changed and _returns_tensors(case):
        return _NO_WORK  # a view or the argument itself, as it came
    leaves = list(results or ())
    new_elements = sum(distinct_elements(leaf.shape, leaf.stride()) for leaf in leaves)
    changed_elements = _changed_elements(case, tensors)
    read = sum(_read_bytes(case, argument, tensor, new_elements, changed_elements) for argument, tensor in tensors)
    written = 0 if _leaves_unwritten(case) else sum(_nbytes(leaf) for leaf in leaves)
    written += sum(min(_elements(tensor), changed_elements) * _itemsize(tensor) for tensor in changed)
    updated = sum(
        _read_bytes(case, argument, tensor, new_elements, changed_elements)
        for argument, tensor in tensors
        if _is_written(argument)
    )
    if read + written == 0:
        return _NO_WORK
    dtype = _arithmetic_dtype([tensor for _, tensor in tensors], leaves)
    flops, counted = _flops(case, leaves, new_elements or changed_elements, dtype)
    return Work(read, written, updated, flops, counted, dtype)


def distinct_elements(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Places in memory behind a view: a dimension of stride zero is the same memory again, and so is an overlap."""
    if 0 in shape:
        return 0
    places = span = 1
    for size, stride in zip(shape, strides, strict=True):
        places *= size if stride else 1
        span += (size - 1) * abs(stride)
    return min(places, span)


def _elements(tensor: schema.Tensor) -> int:
    strides = tensor.strides if tensor.strides is not None else operators.contiguous_strides(tensor.shape)
    return distinct_elements(tensor.shape, strides)


def _nbytes(leaf: torch.Tensor) -> int:
    return distinct_elements(leaf.shape, leaf.stride()) * leaf.element_size()


def _itemsize(tensor: schema.Tensor) -> int:
    return operators.torch_dtype(tensor.dtype).itemsize


def _base_name(case: schema.Case) -> str:
    """``index_select`` for ``aten.index_select.default``."""
    return case.operator.split(".")[-2]


def _tensors(case: schema.Case) -> Iterator[tuple[Any, schema.Tensor]]:
    """Every tensor of the call with the argument of torch's schema that it is, or is part of."""
    for index, argument in enumerate(operators.resolve(case.operator)._schema.arguments):
        recipe = case.args[index] if index < len(case.args) else case.kwargs.get(argument.name)
        yield from ((argument, tensor) for tensor in _flattened(recipe))


def _flattened(recipe: schema.Argument | None) -> Iterator[schema.Tensor]:
    if isinstance(recipe, schema.Tensor):
        yield recipe
    elif isinstance(recipe, schema.Sequence):
        for item in recipe.items:
            yield from _flattened(item)


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and bool(argument.alias_info.is_write)


def _leaves_unwritten(case: schema.Case) -> bool:
    """Whether the operator only asks for memory: ``empty_like``, ``new_empty_strided`` …"""
    return _base_name(case).removeprefix("new_").startswith("empty")


def _returns_tensors(case: schema.Case) -> bool:
    return any("Tensor" in str(item.type) for item in operators.resolve(case.operator)._schema.returns)


def _changed_elements(case: schema.Case, tensors: Sequence[tuple[Any, schema.Tensor]]) -> int:
    """Of an argument that is written to, how many elements must be touched."""
    whole = sum(_elements(tensor) for argument, tensor in tensors if _is_written(argument))
    if _base_name(case) not in _WRITTEN_THROUGH_INDICES:
        return whole
    sizes = {argument.name: _elements(tensor) for argument, tensor in tensors}
    return min(whole, next((sizes[name] for name in _INCOMING if name in sizes), whole))


def _read_bytes(case: schema.Case, argument: Any, tensor: schema.Tensor, new: int, changed: int) -> int:
    name, elements = _base_name(case), _elements(tensor)
    if _is_written(argument):
        elements = 0 if argument.is_out or name in _OVERWRITING else min(elements, changed)
    elif name.endswith("_like") or name.startswith("new_"):
        elements = 0  # only its shape is looked at
    elif name.endswith("_copy") or (name in _READ_THROUGH_INDICES and argument.name in ("self", "weight", "input")):
        elements = min(elements, new)
    return elements * _itemsize(tensor)


def _arithmetic_dtype(tensors: Sequence[schema.Tensor], new: Sequence[torch.Tensor]) -> str | None:
    dtypes = [operators.torch_dtype(tensor.dtype) for tensor in tensors] or [leaf.dtype for leaf in new]
    floating = [dtype.to_real() for dtype in dtypes if dtype.is_floating_point or dtype.is_complex]
    widest = max(floating, key=lambda dtype: dtype.itemsize, default=None)
    return None if widest is None else str(widest).removeprefix("torch.")


def _flops(
    case: schema.Case, leaves: Sequence[torch.Tensor], elements: int, dtype: str | None
) -> tuple[int, schema.FlopCount]:
    """A formula where there is one; else one for each element of the result, if each is calculated by itself."""
    if not elements:
        return 0, "none"
    if dtype is None:
        return 0, "unknown" if _takes_more_than_a_pass(case) else "none"
    if operators.traits(case.operator).pointwise:
        return (0, "none") if _base_name(case) in _COPYING else (elements, "pointwise")
    formula = _flops_by_formula(case, leaves)
    if not formula:
        return 0, "unknown" if formula is None or _takes_more_than_a_pass(case) else "none"
    is_complex = any(operators.torch_dtype(tensor.dtype).is_complex for tensor in schema.tensors_of(case))
    return formula * (_REAL_PER_COMPLEX if is_complex else 1), "formula"


def _takes_more_than_a_pass(case: schema.Case) -> bool:
    """Whether the operator does so much with each element that the bytes it moves say nothing about its time."""
    words = set(_base_name(case).split("_"))
    heavy = not words.isdisjoint(_MORE_THAN_A_PASS) or any(word.startswith("conv") for word in words)
    return (heavy and words.isdisjoint(_ONLY_MOVING)) or operators.traits(case.operator).factorizes


def _flops_by_formula(case: schema.Case, leaves: Sequence[torch.Tensor]) -> int | None:
    """By torch's own table and ours of attention; operators that are composed of others by what they are composed of.

    None: there is a formula, which does not know this form.
    """
    from torch.utils.flop_counter import FlopCounterMode, flop_registry  # a fifth of a second that few cases need

    overload = operators.resolve(case.operator)
    args, kwargs = _arguments_without_memory(case)[1:]
    formula = (flop_registry | attention_formulas()).get(overload._overloadpacket)
    if formula is not None:
        result = leaves[0] if len(leaves) == 1 else tuple(leaves)
        try:
            return int(formula(*args, **kwargs, out_val=result))
        except (*OPERATOR_ERRORS, AssertionError):
            return None
    if not torch._C._dispatch_has_kernel_for_dispatch_key(overload._name, "CompositeImplicitAutograd"):
        return 0
    try:
        with torch.no_grad(), FlopCounterMode(display=False, custom_mapping=attention_formulas()) as counter:
            overload(*args, **kwargs)
    except (*OPERATOR_ERRORS, AssertionError):  # shapes that hang on values
        return 0
    return int(counter.get_total_flops())


def _results_without_memory(case: schema.Case) -> list[torch.Tensor] | None:
    """What torch's operator makes of tensors of the meta device; None if that hangs on values, or does not exist."""
    given, args, kwargs = _arguments_without_memory(case)
    try:
        with torch.no_grad():
            result = operators.resolve(case.operator)(*args, **kwargs)
    except OPERATOR_ERRORS:
        return None
    memory = {tensor.untyped_storage()._cdata for tensor in given}
    leaves = [leaf for leaf in operators.flatten_outputs(result) if isinstance(leaf, torch.Tensor)]
    return [leaf for leaf in leaves if leaf.untyped_storage()._cdata not in memory]


def _arguments_without_memory(case: schema.Case) -> tuple[list[torch.Tensor], list[Any], dict[str, Any]]:
    given = [_meta_tensor(recipe) for recipe in schema.tensors_of(case)]
    return given, *operators.build_arguments(case, given, torch.device("meta"))


def _meta_tensor(recipe: schema.Tensor) -> torch.Tensor:
    dtype = operators.torch_dtype(recipe.dtype)
    storage = torch.empty(operators.storage_extent(recipe), dtype=dtype, device="meta")
    return operators.view_of(storage, recipe)
