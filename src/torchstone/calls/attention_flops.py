"""Counts the floating-point operations of attention, for all of torch's attention operators.

torch's own table lacks the CPU operators. For causal attention it counts all pairs of a query and a key, though a
kernel skips half of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import torch

_BOTTOM_RIGHT = 2
"""Value of ``custom_mask_type`` for a diagonal that ends at the last query and key; with 1 it begins at the first."""


class _Form(NamedTuple):
    """Which tensors an operator takes, and in which layout."""

    is_backward: bool = False
    heads_last: bool = False
    """``(batch, length, heads, size)`` instead of ``(batch, heads, length, size)``."""


_FORMS = {
    "scaled_dot_product_attention": _Form(),
    "_scaled_dot_product_attention_math": _Form(),
    "_scaled_dot_product_attention_math_for_mps": _Form(),
    "_scaled_dot_product_flash_attention": _Form(),
    "_scaled_dot_product_flash_attention_backward": _Form(is_backward=True),
    "_scaled_dot_product_flash_attention_for_cpu": _Form(),
    "_scaled_dot_product_flash_attention_for_cpu_backward": _Form(is_backward=True),
    "_scaled_dot_product_efficient_attention": _Form(),
    "_scaled_dot_product_efficient_attention_backward": _Form(is_backward=True),
    "_scaled_dot_product_cudnn_attention": _Form(),
    "_scaled_dot_product_cudnn_attention_backward": _Form(is_backward=True),
    "_scaled_dot_product_fused_attention_overrideable": _Form(),
    "_scaled_dot_product_fused_attention_overrideable_backward": _Form(is_backward=True),
    "_cudnn_attention_forward": _Form(),
    "_cudnn_attention_backward": _Form(is_backward=True),
    "_flash_attention_forward": _Form(heads_last=True),
    "_flash_attention_backward": _Form(is_backward=True, heads_last=True),
    "_efficient_attention_forward": _Form(heads_last=True),
    "_efficient_attention_backward": _Form(is_backward=True, heads_last=True),
}


@cache
def attention_formulas() -> dict[Any, Callable[..., int]]:
    """Operator -> formula, in the form that torch's flop counter takes, with the call's own arguments."""
    known = {name: form for name, form in _FORMS.items() if hasattr(torch.ops.aten, name)}
    return {
        getattr(torch.ops.aten, name): _formula(getattr(torch.ops.aten, name), form) for name, form in known.items()
    }


def _formula(packet: Any, form: _Form) -> Callable[..., int]:
    names = tuple(argument.name for argument in packet.default._schema.arguments)
    counted = partial(_flops, names, form)
    counted._get_raw = True  # type: ignore[attr-defined]  # tells torch that the formula takes tensors, not shapes
    return counted


def _flops(names: tuple[str, ...], form: _Form, *args: Any, out_val: Any = None, **kwargs: Any) -> int:
    """Two operations for each pair of a query and a key it attends to, and for each element of their vectors.

    Forward: scores, and the weighted mean of the values. Backward: the scores again, since they are not kept, and the
    gradients of scores, queries, keys and values. Raises ValueError if sequence lengths are values of tensors, which
    are not known here.
    """
    given = dict(zip(names, args, strict=False)) | kwargs
    lengths = (given.get(name) for name in names if name.startswith(("cu_seqlens", "cum_seq")))
    if any(isinstance(each, torch.Tensor) and each.numel() for each in lengths):
        raise ValueError("the lengths of the sequences are values")
    query, key, value = (_with_heads_first(given[name], form) for name in ("query", "key", "value"))
    pairs = _visible_pairs(query.shape[-2], key.shape[-2], given)
    heads = max(math.prod(each.shape[:-2]) for each in (query, key, value))
    score, mean = query.shape[-1], value.shape[-1]
    sizes = 3 * score + 2 * mean if form.is_backward else score + mean
    return 2 * heads * pairs * sizes


def _with_heads_first(tensor: torch.Tensor, form: _Form) -> torch.Tensor:
    return tensor.transpose(-2, -3) if form.heads_last else tensor


def _visible_pairs(queries: int, keys: int, given: dict[str, Any]) -> int:
    """Pairs of a query and a key it attends to; in a causal call, each query has one key more than the one before."""
    mask = int(given.get("custom_mask_type") or 0)
    if not given.get("is_causal") and not mask:
        return queries * keys
    diagonal_offset = keys - queries if mask == _BOTTOM_RIGHT else 0
    return sum(min(max(query + 1 + diagonal_offset, 0), keys) for query in range(queries))
