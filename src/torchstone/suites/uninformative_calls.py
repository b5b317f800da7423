"""Finds recorded calls that even a kernel that copies its input gets right, by their arguments only; says why.

Models really make such calls: they pool to the size that the input already has, multiply by 1, stack one tensor. A
kernel that only copies its argument is right there, so such calls cannot show that it is wrong. Nothing is computed
here: a suite of recorded calls is read in a second. ``torchstone audit-suite`` checks whether any such call is missed.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from torchstone.operator_categories import base_name, is_of
from torchstone.schema import Argument, Case, Scalar, Sequence, Tensor, tensors_of
from torchstone.suites.smoke import EXCUSES

COPY = "with these arguments the right result is a copy of an argument"
CONSTANT = "the result is the same for all values of the arguments"
FLAGS = "the comparison with 0 equals a conversion to bool, so a kernel that only converts is right"
EXTREME = "a kernel that skips part of the input seldom misses the largest or smallest element"
ANY = "over many booleans, any and all nearly always give the same result"
UNUSED = "outside of training the saved statistics are undefined"
WEIGHTS = "without weights the total weight is the number of rows"
SWITCH = "one boolean decides the whole result, and a guess of it may be right"
FEW_FLAGS = "the result has so few booleans that a guess may be right"
WORKING_MEMORY = "besides its result, fused attention returns working memory, whose content is undefined"
MANY_TERMS = "the rounding errors of very many terms cancel, so that lower precision does not show in their mean"

_NEUTRAL = {"add": 0, "add_": 0, "sub": 0, "sub_": 0, "mul": 1, "mul_": 1, "div": 1, "div_": 1, "pow": 1}
"""Operator -> its neutral element: the second operand for which the result equals the first operand."""
_FEW_FLAGS = 128
"""Elements below which a result of bools is too small to judge."""
_MANY_TERMS = 1 << 14
"""Elements per group from which the rounding errors of a mean cancel."""
_UNSIGNED_DTYPES = ("bool", "uint8", "uint16", "uint32", "uint64")


def excuse(case: Case) -> str:
    """Why a trivial kernel may pass the case; empty: no reason is known."""
    most = max((math.prod(tensor.shape) for tensor in tensors_of(case)), default=0)
    if most <= 1:
        return EXCUSES["empty"] if most == 0 else EXCUSES["one-element"]
    return next((reason for reason, holds in _REASONS.items() if holds(case)), "")


def _name(case: Case) -> str:
    return base_name(case.operator)


def _is_copy(case: Case) -> bool:
    name = _name(case)
    if is_of(case.operator, "may_copy"):
        return True
    if name in ("stack", "cat"):
        parts = case.args[0].items if case.args and isinstance(case.args[0], Sequence) else ()
        return sum(isinstance(part, Tensor) and 0 not in part.shape for part in parts) == 1
    if name in ("index_put", "index_put_"):
        return _writes_all_in_order(case)
    return _is_neutral(case) or _keeps_its_size(case) or _reduces_nothing(case) or _copies_to_bias_gradient(case)


def _writes_all_in_order(case: Case) -> bool:
    """Whether the call writes all positions in order. Distinct indices are drawn sorted; here there is one for each."""
    target, indices = case.args[0], case.args[1]
    first = indices.items[0] if isinstance(indices, Sequence) and indices.items else None
    return isinstance(target, Tensor) and isinstance(first, Tensor) and first.shape == target.shape[:1]


def _is_neutral(case: Case) -> bool:
    if _name(case) not in _NEUTRAL or len(case.args) < 2 or not isinstance(case.args[1], Scalar):
        return False
    return _number(case.args[1]) is not None and _number(case.args[1]) == _NEUTRAL[_name(case)]


def _keeps_its_size(case: Case) -> bool:
    """Whether the result has the input's size: pooling to that size, padding by 0, the gradient of a full slice, …"""
    name, shapes = _name(case), [tensor.shape for tensor in tensors_of(case)]
    if name.endswith("_backward") and "adaptive_avg_pool" in name:
        return len(shapes) == 2 and shapes[0] == shapes[1]
    sizes = _sizes(case.args[1]) if len(case.args) > 1 else None
    if sizes is None or not shapes:
        return False
    if "adaptive_avg_pool" in name or "upsample" in name:
        return shapes[0][-len(sizes) :] == sizes
    if name in ("repeat", "constant_pad_nd"):
        return set(sizes) <= {1 if name == "repeat" else 0}
    return name in ("slice_backward", "expand") and shapes[0] == sizes


def _reduces_nothing(case: Case) -> bool:
    """Whether the call reduces only over dimensions of size 1."""
    if not is_of(case.operator, "reduces_dimensions") or len(case.args) < 2 or not isinstance(case.args[0], Tensor):
        return False
    shape = case.args[0].shape
    over = _sizes(case.args[1]) or ((_number(case.args[1]),) if _number(case.args[1]) is not None else ())
    return bool(over) and all(isinstance(d, int) and -len(shape) <= d < len(shape) and shape[d] == 1 for d in over)


def _copies_to_bias_gradient(case: Case) -> bool:
    """Whether the call is a convolution's gradient with one output element per channel: the bias gradient is a copy."""
    if _name(case) != "convolution_backward" or not isinstance(case.args[0], Tensor):
        return False
    shape = case.args[0].shape
    return len(shape) > 1 and math.prod(shape) == shape[1]


def _is_constant(case: Case) -> bool:
    return is_of(case.operator, "is_constant")


def _compares_with_zero(case: Case) -> bool:
    name, others = _name(case), case.args[1:]
    if not others or not isinstance(case.args[0], Tensor) or _number(others[0]) != 0:
        return False
    return name == "ne" or (name == "gt" and case.args[0].dtype in _UNSIGNED_DTYPES)


def _is_extreme(case: Case) -> bool:
    return is_of(case.operator, "finds_one_extreme")


def _decides_about_flags(case: Case) -> bool:
    return is_of(case.operator, "decides_about_all_flags")


def _is_batch_norm_inference(case: Case) -> bool:
    flags = [
        argument.value for argument in case.args if isinstance(argument, Scalar) and isinstance(argument.value, bool)
    ]
    return "batch_norm" in _name(case) and "backward" not in _name(case) and flags[:1] == [False]


def _counts_rows(case: Case) -> bool:
    return _name(case).startswith("nll_loss") and "forward" in _name(case) and not isinstance(case.args[2], Tensor)


def _is_switch(case: Case) -> bool:
    tensors = tensors_of(case)
    both = len(tensors) == 2 and all(tensor.dtype == "bool" for tensor in tensors)
    return both and min(math.prod(tensor.shape) for tensor in tensors) == 1


def _has_few_flags(case: Case) -> bool:
    most = max(math.prod(tensor.shape) for tensor in tensors_of(case))
    flags = is_of(case.operator, "returns_flags") or all(tensor.dtype == "bool" for tensor in tensors_of(case))
    return flags and most < _FEW_FLAGS


def _is_fused_attention(case: Case) -> bool:
    return is_of(case.operator, "is_fused_attention")


def _has_statistics_of_many(case: Case) -> bool:
    """Whether the call is a norm over groups of very many elements, which also returns their mean and deviation."""
    first = case.args[0] if case.args else None
    if _name(case) not in ("native_group_norm", "native_layer_norm") or not isinstance(first, Tensor):
        return False
    groups = _number(case.args[6]) if _name(case) == "native_group_norm" and len(case.args) > 6 else None
    rows = first.shape[0] * int(groups) if groups else math.prod(first.shape[:-1])
    return math.prod(first.shape) // max(1, rows) >= _MANY_TERMS


_REASONS: dict[str, Callable[[Case], bool]] = {
    COPY: _is_copy,
    CONSTANT: _is_constant,
    FLAGS: _compares_with_zero,
    EXTREME: _is_extreme,
    ANY: _decides_about_flags,
    UNUSED: _is_batch_norm_inference,
    WEIGHTS: _counts_rows,
    SWITCH: _is_switch,
    FEW_FLAGS: _has_few_flags,
    WORKING_MEMORY: _is_fused_attention,
    MANY_TERMS: _has_statistics_of_many,
}


def _number(argument: Argument) -> bool | int | float | None:
    value = argument.value if isinstance(argument, Scalar) else None
    return value if isinstance(value, (bool, int, float)) else None


def _sizes(argument: Argument) -> tuple[int, ...] | None:
    if not isinstance(argument, Sequence):
        return None
    sizes = [_number(item) for item in argument.items]
    return tuple(size for size in sizes if isinstance(size, int)) if all(isinstance(s, int) for s in sizes) else None
