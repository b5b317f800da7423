"""Counts the bytes that any kernel must move for a case, and its arithmetic operations.

They are counted from the case and torch's own operator on tensors without memory (the meta device), never from a
candidate. So a candidate cannot come closer to the device's limit by doing less, or raise its rate by doing more. All
counts are lower bounds, as far as torch's schema tells. Work that depends on the values (which rows an index selects)
is bounded by the size of the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch

from torchstone import model_operators, operators, schema
from torchstone.calls.attention_flops import attention_formulas
from torchstone.calls.reference_calls import OPERATOR_ERRORS

_INCOMING_ARGUMENTS = ("src", "source", "values", "index")
"""Names of the argument that holds the incoming values of an indexed write, best first."""
_REAL_PRODUCTS_PER_COMPLEX = 4
"""A complex product and sum take four real products and four real sums; torch's formulas count one of each."""


class Work(NamedTuple):
    """The least work of one call of a case."""

    read_bytes: int
    """Bytes of every argument that is read, each element once."""
    written_bytes: int
    """Bytes of every new result and every argument that is written to, each element once."""
    updated_bytes: int
    """Bytes that are read and written in the same place; both other counts include them."""
    flops: int
    flops_counted: schema.FlopCount
    dtype: str | None
    """Dtype of the arithmetic: the widest floating-point dtype among the tensors; None if there is none."""


_NO_WORK = Work(0, 0, 0, 0, "none", None)


def work_of(case: schema.Case, new: Sequence[torch.Tensor] | None = None) -> Work:
    """Count the work of a case. The counts depend only on the case and the version of torch.

    ``new``: torch's own results in new memory, if the caller has them. Only their shapes are used. They save a call on
    the meta device, whose first use in a process takes seconds.
    """
    if operators.is_view(case.operator):
        return _NO_WORK
    results = new if new is not None else _results_without_memory(case)
    tensors = list(_tensors(case))
    changed = [tensor for argument, tensor in tensors if _is_written(argument)]
    if results is not None and not results and not changed and _returns_tensors(case):
        return _NO_WORK  # a view, or the argument itself without a change
    leaves = list(results or ())
    new_elements = sum(distinct_elements(leaf.shape, leaf.stride()) for leaf in leaves)
    changed_elements = _changed_elements(case, tensors)
    read = sum(_read_bytes(case, argument, tensor, new_elements, changed_elements) for argument, tensor in tensors)
    written = 0 if _returns_unwritten_memory(case) else sum(_nbytes(leaf) for leaf in leaves)
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
    """Number of different memory elements of a view: stride 0 or an overlap uses the same memory several times."""
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


def _tensors(case: schema.Case) -> Iterator[tuple[Any, schema.Tensor]]:
    """Every tensor of the call, with its argument in torch's schema (the list's, for a tensor in a list)."""
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


def _returns_unwritten_memory(case: schema.Case) -> bool:
    """Whether the operator only allocates memory: ``empty_like``, ``new_empty_strided`` …"""
    return operators.traits(case.operator).asks_for_memory


def _returns_tensors(case: schema.Case) -> bool:
    return any("Tensor" in str(item.type) for item in operators.resolve(case.operator)._schema.returns)


def _changed_elements(case: schema.Case, tensors: Sequence[tuple[Any, schema.Tensor]]) -> int:
    """How many elements of the written arguments must change."""
    whole = sum(_elements(tensor) for argument, tensor in tensors if _is_written(argument))
    if not operators.traits(case.operator).writes_by_index:
        return whole
    sizes = {argument.name: _elements(tensor) for argument, tensor in tensors}
    return min(whole, next((sizes[name] for name in _INCOMING_ARGUMENTS if name in sizes), whole))


def _read_bytes(case: schema.Case, argument: Any, tensor: schema.Tensor, new: int, changed: int) -> int:
    traits, elements = operators.traits(case.operator), _elements(tensor)
    name = traits.base
    if _is_written(argument):
        elements = 0 if argument.is_out or traits.overwrites else min(elements, changed)
    elif name.endswith("_like") or name.startswith("new_"):
        elements = 0  # only its shape is used
    elif name.endswith("_copy") or (traits.reads_by_index and argument.name in ("self", "weight", "input")):
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
    """Number of operations, and how it is counted: by a formula, or one per result element of a pointwise operator."""
    if not elements:
        return 0, "none"
    if dtype is None:
        return 0, "unknown" if _computes_more_than_one_pass(case) else "none"
    if operators.traits(case.operator).pointwise:
        return (0, "none") if operators.traits(case.operator).copies else (elements, "pointwise")
    formula = _flops_by_formula(case, leaves)
    if not formula:
        return 0, "unknown" if formula is None or _computes_more_than_one_pass(case) else "none"
    is_complex = any(operators.torch_dtype(tensor.dtype).is_complex for tensor in schema.tensors_of(case))
    return formula * (_REAL_PRODUCTS_PER_COMPLEX if is_complex else 1), "formula"


def _computes_more_than_one_pass(case: schema.Case) -> bool:
    """Whether the operator computes so much per element that its bytes say nothing about its time."""
    traits = operators.traits(case.operator)
    return traits.makes_several_passes or traits.factorizes


def _flops_by_formula(case: schema.Case, leaves: Sequence[torch.Tensor]) -> int | None:
    """Operations by torch's formulas, and Torchstone's for attention. 0: no formula.

    A composed operator counts for the operators that it is composed of. None: the formula fails for these arguments.
    """
    from torch.utils.flop_counter import FlopCounterMode, flop_registry  # slow (0.2 s); few cases need it

    overload = operators.resolve(case.operator)
    host = model_operators.host_of(case)
    if host is not None:
        return host.flops(case) or 0
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
    except (*OPERATOR_ERRORS, AssertionError):  # shapes that depend on values
        return 0
    return int(counter.get_total_flops())


def _results_without_memory(case: schema.Case) -> list[torch.Tensor] | None:
    """New results of torch's operator on the meta device; None if their shapes depend on values, or it has none."""
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
