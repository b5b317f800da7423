"""Converts attention calls that were recorded on the CPU to the operators that torch calls on CUDA.

torch has one operator for `scaled_dot_product_attention` on the CPU and several on CUDA, chosen by dtype and mask. A
model traced on the CPU calls the first. On CUDA the same model would call one of the others, with the arguments that
this module makes. It needs shapes only and does not import torch.
"""

from __future__ import annotations

from torchstone.suites.recorded_call_text import TracedCall, TracedTensor, Value

_ON_CPU = "aten._scaled_dot_product_flash_attention_for_cpu"
FORWARD, BACKWARD = f"{_ON_CPU}.default", f"{_ON_CPU}_backward.default"
_FLASH = "aten._scaled_dot_product_flash_attention"
_EFFICIENT = "aten._scaled_dot_product_efficient_attention"
_FLASH_DTYPES = ("float16", "bfloat16")
_MAX_FLASH_HEAD_DIM = 256
"""Largest head dimension that is sent to flash attention."""
_LOGSUMEXP_ROW_MULTIPLE = 32
"""The kernel that takes masks pads its sums of exponentials to a multiple of this number of rows."""
_SEED = TracedTensor((), "int64")
_RANDOM_STATE = TracedTensor((2,), "int64")
"""State of the random generator, not read without dropout. In torch it is unsigned, which recorded calls cannot say."""


def on_cuda(operator: str, call: TracedCall) -> tuple[str, TracedCall]:
    """The operator and arguments that torch uses on CUDA for an attention call. Other calls are returned unchanged."""
    if operator == FORWARD:
        return _forward(call)
    if operator == BACKWARD:
        return _backward(call)
    return operator, call


def _forward(call: TracedCall) -> tuple[str, TracedCall]:
    query, key, value = call.args[:3]
    dropout = call.args[3] if len(call.args) > 3 else 0.0
    causal = call.args[4] if len(call.args) > 4 else False
    mask, named = call.kwargs.get("attn_mask"), _scale(call)
    if _uses_flash(query, mask):
        return f"{_FLASH}.default", TracedCall((query, key, value, dropout, causal), named)
    bias = _expanded(mask, query, key)
    return f"{_EFFICIENT}.default", TracedCall((query, key, value, bias, True, dropout, causal), named)


def _backward(call: TracedCall) -> tuple[str, TracedCall]:
    gradient, query, key, value, out, _, dropout, causal = call.args
    mask, named = call.kwargs.get("attn_mask"), _scale(call)
    batch, heads, rows, _ = _shape(query)
    if _uses_flash(query, mask):
        sums = TracedTensor((batch, heads, rows), "float32")
        longest = rows, _shape(key)[2]
        rest = sums, None, None, *longest, dropout, causal, _RANDOM_STATE, _SEED
        return f"{_FLASH}_backward.default", TracedCall((gradient, query, key, value, out, *rest), named)
    blocks = -(-rows // _LOGSUMEXP_ROW_MULTIPLE) * _LOGSUMEXP_ROW_MULTIPLE
    sums = TracedTensor((batch, heads, blocks), "float32")
    bias, wanted = _expanded(mask, query, key), (True, True, True, False)
    arguments = gradient, query, key, value, bias, out, sums, _SEED, _SEED, dropout, wanted, causal
    return f"{_EFFICIENT}_backward.default", TracedCall(arguments, named)


def _uses_flash(query: Value, mask: Value) -> bool:
    return (
        mask is None
        and isinstance(query, TracedTensor)
        and query.dtype in _FLASH_DTYPES
        and query.shape[-1] <= _MAX_FLASH_HEAD_DIM
    )


def _expanded(mask: Value, query: Value, key: Value) -> Value:
    """The mask expanded to all heads and samples, with stride 0 along expanded dimensions."""
    if not isinstance(mask, TracedTensor):
        return mask
    batch, heads, rows, _ = _shape(query)
    wanted = batch, heads, rows, _shape(key)[2]
    shape = (1,) * (4 - len(mask.shape)) + mask.shape
    strides = (0,) * (4 - len(mask.shape)) + (mask.strides or _contiguous(mask.shape))
    spread = tuple(stride if size == full else 0 for stride, size, full in zip(strides, shape, wanted, strict=True))
    return TracedTensor(wanted, mask.dtype, None if spread == _contiguous(wanted) else spread)


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _shape(value: Value) -> tuple[int, ...]:
    assert isinstance(value, TracedTensor), "attention is called with tensors"
    return value.shape


def _scale(call: TracedCall) -> dict[str, Value]:
    return {name: value for name, value in call.kwargs.items() if name == "scale"}
