"""Backend `liger`: Triton kernels of the package `liger_kernel`, for ATen operators with the same meaning.

The adapters in this file translate an overload's arguments and results, and make inputs contiguous, as Liger's own
modules do. Calls that a kernel cannot compute (another dimension than the last, no weight, float64) are `unsupported`.

Not offered: fused activations (SwiGLU, GeGLU) and fused losses, which no ATen operator computes, and cross entropy,
whose kernel overwrites its input.
"""

from __future__ import annotations

import importlib.util
from typing import ClassVar

from torchstone.backends.base import BackendOptions
from torchstone.errors import UsageError
from torchstone.schema import Implementation, SourceFile, SourceFiles

_SHARED = '''\
import math

import torch


def refuse(condition, reason):
    if condition:
        raise NotImplementedError(f"Liger's kernel {reason}")


def refuse_float64(tensor):
    refuse(tensor.dtype == torch.float64, "computes in float32")


def rows(tensor, normalized_shape):
    """The tensor as rows of what is normalized together."""
    return tensor.contiguous().view(-1, math.prod(normalized_shape))


def per_row(statistic, tensor, normalized_shape):
    """A number per row, in the shape in which ATen returns it."""
    kept = tensor.dim() - len(normalized_shape)
    return statistic.view(*tensor.shape[:kept], *(1 for _ in normalized_shape))
'''

_LAYER_NORM = """
from liger_kernel.ops.layer_norm import layer_norm_forward


def kernel(input, normalized_shape, weight, bias, eps):
    refuse_float64(input)
    refuse(weight is None or bias is None, "needs weight and bias")
    result, _, mean, rstd, _, _ = layer_norm_forward(
        rows(input, normalized_shape), weight.contiguous().view(-1), bias.contiguous().view(-1), eps
    )
    statistics = (per_row(statistic, input, normalized_shape) for statistic in (mean, rstd))
    return result.view(input.shape), *statistics
"""

_LAYER_NORM_BACKWARD = """
from liger_kernel.ops.layer_norm import layer_norm_backward


def kernel(grad_out, input, normalized_shape, mean, rstd, weight, bias, output_mask):
    refuse_float64(input)
    refuse(weight is None or bias is None, "needs weight and bias")
    grad_input, grad_weight, grad_bias = layer_norm_backward(
        rows(grad_out, normalized_shape),
        rows(input, normalized_shape),
        weight.contiguous().view(-1),
        bias.contiguous().view(-1),
        mean.contiguous().view(-1),
        rstd.contiguous().view(-1),
        output_mask[1],
        output_mask[2],
    )
    return (
        grad_input.view(input.shape) if output_mask[0] else None,
        grad_weight.view(weight.shape) if output_mask[1] else None,
        grad_bias.view(bias.shape) if output_mask[2] else None,
    )
"""

_FUSED_RMS_NORM = """
from liger_kernel.ops.rms_norm import rms_norm_forward

OFFSET = 0.0
ALL_IN_FLOAT32 = "gemma"  # as ATen computes
ROW_MODE = None  # Liger's own choice


def normalize(input, normalized_shape, weight, eps):
    refuse_float64(input)
    result, _, rstd, _, _, _ = rms_norm_forward(
        rows(input, normalized_shape),
        None if weight is None else weight.contiguous().view(-1),
        torch.finfo(input.dtype).eps if eps is None else eps,
        OFFSET,
        ALL_IN_FLOAT32,
        ROW_MODE,
    )
    return result.view(input.shape), per_row(rstd, input, normalized_shape)


def kernel(input, normalized_shape, weight, eps):
    return normalize(input, normalized_shape, weight, eps)
"""

_RMS_NORM = (
    _FUSED_RMS_NORM.rpartition("\n\ndef kernel")[0]
    + """

def kernel(input, normalized_shape, weight=None, eps=None):
    return normalize(input, normalized_shape, weight, eps)[0]
"""
)

_GROUP_NORM = """
from liger_kernel.ops.group_norm import group_norm_forward


def kernel(input, weight, bias, N, C, HxW, group, eps):
    refuse_float64(input)
    refuse(weight is None or bias is None, "needs weight and bias")
    result, _, mean, rstd, _ = group_norm_forward(
        input.contiguous(), C, group, weight.contiguous(), bias.contiguous(), eps
    )
    return result, mean, rstd
"""

_SOFTMAX = """
from liger_kernel.ops.softmax import _softmax_forward


def kernel(self, dim, half_to_float):
    refuse_float64(self)
    refuse(half_to_float, "returns what it is given: no half_to_float")
    refuse(self.dim() == 0 or dim % self.dim() != self.dim() - 1, "works along the last dimension only")
    return _softmax_forward(self)[0]
"""

_SOFTMAX_BACKWARD = """
from liger_kernel.ops.softmax import _softmax_backward
from liger_kernel.ops.utils import calculate_settings


def kernel(grad_output, output, dim, input_dtype):
    refuse_float64(output)
    refuse(input_dtype != output.dtype, "returns the dtype of its input")
    refuse(output.dim() == 0 or dim % output.dim() != output.dim() - 1, "works along the last dimension only")
    block_size, warps = calculate_settings(output.shape[-1])
    return _softmax_backward(grad_output, output, block_size, warps, output.shape[-1] > block_size)
"""

_KL_DIV = """
from liger_kernel.ops.kl_div import kldiv_forward_triton

REDUCTIONS = ("none", "mean", "sum")
SMALLEST_TARGET = 1e-10  # of Liger's module


def kernel(self, target, reduction=1, *, log_target=False):
    refuse_float64(self)
    refuse(self.dim() == 0 or self.shape != target.shape, "needs two tensors of one shape")
    found = kldiv_forward_triton(
        self.contiguous().view(-1, self.shape[-1]),
        target.contiguous().view(-1, self.shape[-1]),
        log_target,
        REDUCTIONS[reduction],
        SMALLEST_TARGET,
    )
    return found.view(self.shape if reduction == 0 else ()).to(self.dtype)
"""

ADAPTERS = {
    "aten._fused_rms_norm.default": _FUSED_RMS_NORM,
    "aten._softmax.default": _SOFTMAX,
    "aten._softmax_backward_data.default": _SOFTMAX_BACKWARD,
    "aten.kl_div.default": _KL_DIV,
    "aten.native_group_norm.default": _GROUP_NORM,
    "aten.native_layer_norm.default": _LAYER_NORM,
    "aten.native_layer_norm_backward.default": _LAYER_NORM_BACKWARD,
    "aten.rms_norm.default": _RMS_NORM,
}
"""Overload -> the source of its adapter. The entry point is `kernel`."""


class LigerBackend:
    """Triton kernels of the installed package Liger-Kernel; needs a GPU."""

    operator_count: ClassVar[int] = len(ADAPTERS)

    def __init__(self, options: BackendOptions) -> None:
        if importlib.util.find_spec("liger_kernel") is None:
            raise UsageError(
                "backend 'liger' needs the package liger_kernel, which is not installed. "
                "Install it: pip install --no-deps liger-kernel."
            )
        if options.device_type == "cpu":
            raise UsageError("backend 'liger' needs a GPU: its kernels are written in Triton. Add --device cuda.")

    def implementation(self, operator: str) -> Implementation | None:
        adapter = ADAPTERS.get(operator)
        if adapter is None:
            return None
        source = SourceFile("liger_adapter.py", _SHARED + adapter)
        origin = SourceFiles((source,), "kernel", f"liger_kernel for {operator}")
        return Implementation("liger", operator, origin, "triton", "liger_kernel")

    def operators(self) -> tuple[str, ...]:
        """Every overload that is served."""
        return tuple(ADAPTERS)
