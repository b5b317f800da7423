"""The built-in kernels as functions with autograd: what a model calls instead of `torch.nn.functional`.

All but the `native_` ones check what the kernels rely on: shapes, dtypes, one device. A kernel that gets a too short
weight would read beyond its end. Nothing here waits for the device. An autograd node is made only if a gradient is
needed. Gradients come from the kernels of the backward overloads; differentiating these a second time raises
RuntimeError.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd.function import once_differentiable
from torch.nn import functional

from torchstone.errors import UsageError, unknown_name
from torchstone.kernels.catalogue import fused, is_interpreted, kernel, require_known
from torchstone.kernels.input_preparation import DTYPES

REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}
"""Reduction of a loss -> its number in ATen."""
_APPROXIMATIONS = ("none", "tanh")


def layer_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
    *,
    normalized_shape: Sequence[int] | None = None,
    impl: str = "triton",
) -> torch.Tensor:
    """Layer normalisation over the dimensions of `weight`, which are the last ones of `x`.

    Without a weight, over those of `bias`; without either, over the last dimension. `normalized_shape` overrides this.
    """
    shape = _normalized_shape(x, weight, bias, normalized_shape)
    if impl == "torch":
        return functional.layer_norm(x, shape, weight, bias, eps)
    _require(impl, x, weight, bias)
    return native_layer_norm(x, shape, weight, bias, eps, impl=impl)[0]


def gelu(x: torch.Tensor, approximate: str = "none", *, impl: str = "triton") -> torch.Tensor:
    """GELU, exact (`none`: by erf) or by `tanh`."""
    _require_approximation(approximate)
    if impl == "torch":
        return functional.gelu(x, approximate=approximate)
    _require(impl, x)
    if _needs_gradient(x):
        return _applied(_Gelu, x, approximate, impl)
    return _tensor(kernel("gelu", impl)(x, approximate=approximate))


def swish(x: torch.Tensor, *, impl: str = "triton") -> torch.Tensor:
    """Swish, which torch calls SiLU: x times sigmoid(x)."""
    if impl == "torch":
        return functional.silu(x)
    _require(impl, x)
    if _needs_gradient(x):
        return _applied(_Silu, x, impl)
    return _tensor(kernel("silu", impl)(x))


silu = swish


def mse_loss(x: torch.Tensor, target: torch.Tensor, reduction: str = "mean", *, impl: str = "triton") -> torch.Tensor:
    """Mean squared error. Shapes are broadcast; both have one dtype."""
    number = _reduction(reduction)
    x, target = torch.broadcast_tensors(x, target)  # type: ignore[no-untyped-call]
    if impl == "torch":
        return functional.mse_loss(x, target, reduction=reduction)
    _require(impl, x, target)
    if x.dtype != target.dtype:
        raise UsageError(f"mse_loss: x is {x.dtype}, target is {target.dtype}. Give both one dtype.")
    return native_mse_loss(x, target, number, impl=impl)


def cross_entropy(
    x: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    *,
    impl: str = "triton",
) -> torch.Tensor:
    """Cross-entropy of logits with class indices, or with class probabilities in the shape of `x`.

    As in torch, dimension 1 is the classes, or dimension 0 where it is the only one. Probabilities get no gradient.
    Indices beyond the classes are not detected, since checking would wait for the device.
    """
    number = _reduction(reduction)
    if impl == "torch":
        return functional.cross_entropy(
            x, target, weight, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing
        )
    _require(impl, x, weight)
    _require_targets(x, target, weight)
    # One autograd function, because torch has no backward overload of this operator.
    return _tensor(kernel("cross_entropy_loss", impl)(x, target, weight, number, ignore_index, label_smoothing))


def layer_norm_gelu(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    eps: float = 1e-5,
    approximate: str = "none",
    *,
    impl: str = "triton",
) -> torch.Tensor:
    """GELU of the layer normalisation over the dimensions of `weight`, in one kernel."""
    _require_approximation(approximate)
    if weight is None or bias is None:
        raise UsageError("layer_norm_gelu needs weight and bias. Give ones and zeros, or call layer_norm and gelu.")
    shape = _normalized_shape(x, weight, bias, None)
    if impl == "torch":
        return functional.gelu(functional.layer_norm(x, shape, weight, bias, eps), approximate=approximate)
    _require(impl, x, weight, bias)
    columns = weight.numel()
    rows = x.shape[: x.dim() - len(shape)].numel()
    flat = x.reshape(rows, columns), weight.reshape(columns), bias.reshape(columns)
    if _needs_gradient(*flat):
        return _applied(_LayerNormGelu, *flat, eps, approximate, impl).view(x.shape)
    return _tensor(fused("layer_norm_gelu", impl).forward(*flat, eps, approximate)[0]).view(x.shape)


def native_layer_norm(
    x: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
    *,
    impl: str,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`aten.native_layer_norm` with autograd: the result, the mean, and one over the standard deviation."""
    shape = tuple(normalized_shape)
    if _needs_gradient(x, weight, bias):
        found = _LayerNorm.apply(x, shape, weight, bias, eps, impl)  # type: ignore[no-untyped-call]
    else:
        found = kernel("native_layer_norm", impl)(x, shape, weight, bias, eps)
    y, mean, rstd = found
    return y, mean, rstd


def native_mse_loss(x: torch.Tensor, target: torch.Tensor, reduction: int, *, impl: str) -> torch.Tensor:
    """`aten.mse_loss` with autograd.

    Shapes that differ are differentiated as ATen does. The gradient of a mean divides by the number of elements of the
    argument before it is broadcast. `mse_loss` broadcasts first, as torch's function does.
    """
    if _needs_gradient(x, target):
        return _applied(_MseLoss, x, target, reduction, impl)
    return _tensor(kernel("mse_loss", impl)(x, target, reduction))


# ---- gradients


class _LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        shape: tuple[int, ...],
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        eps: float,
        impl: str,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        y, mean, rstd = kernel("native_layer_norm", impl)(x, shape, weight, bias, eps)
        ctx.save_for_backward(x, weight, bias, mean, rstd)
        ctx.shape, ctx.impl = shape, impl
        ctx.mark_non_differentiable(mean, rstd)
        ctx.set_materialize_grads(False)
        return y, mean, rstd

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: torch.Tensor | None, *_: None) -> tuple[torch.Tensor | None, ...]:
        if dy is None:
            return (None,) * 6
        x, weight, bias, mean, rstd = ctx.saved_tensors
        wants_dx, _, wants_dw, wants_db, *_ = ctx.needs_input_grad
        backward = kernel("native_layer_norm_backward", ctx.impl)
        mask = [wants_dx, wants_dw, wants_db]
        dx, dw, db = backward(dy, x, ctx.shape, mean, rstd, weight, bias, mask)
        return dx, None, dw, db, None, None


class _Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, approximate: str, impl: str) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.approximate, ctx.impl = approximate, impl
        return _tensor(kernel("gelu", impl)(x, approximate=approximate))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (x,) = ctx.saved_tensors
        return kernel("gelu_backward", ctx.impl)(dy, x, approximate=ctx.approximate), None, None


class _Silu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, impl: str) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.impl = impl
        return _tensor(kernel("silu", impl)(x))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (x,) = ctx.saved_tensors
        return kernel("silu_backward", ctx.impl)(dy, x), None


class _MseLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, target: torch.Tensor, reduction: int, impl: str) -> torch.Tensor:
        ctx.save_for_backward(x, target)
        ctx.reduction, ctx.impl = reduction, impl
        return _tensor(kernel("mse_loss", impl)(x, target, reduction))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, target = ctx.saved_tensors
        wants_dx, wants_dt, *_ = ctx.needs_input_grad
        backward = kernel("mse_loss_backward", ctx.impl)
        dx = backward(dy, x, target, ctx.reduction).sum_to_size(x.shape) if wants_dx else None
        dt = backward(dy, target, x, ctx.reduction).sum_to_size(target.shape) if wants_dt else None
        return dx, dt, None, None


class _LayerNormGelu(torch.autograd.Function):
    """Fused layer norm and GELU of rows: x has two dimensions, weight and bias have one."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float, approximate: str, impl: str
    ) -> torch.Tensor:
        y, mean, rstd = fused("layer_norm_gelu", impl).forward(x, weight, bias, eps, approximate)
        ctx.save_for_backward(x, weight, bias, mean, rstd)
        ctx.approximate, ctx.impl = approximate, impl
        return _tensor(y)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        saved = ctx.saved_tensors
        found = fused("layer_norm_gelu", ctx.impl).backward(dy, *saved, ctx.approximate)
        return (*found, None, None, None)


def _applied(function: type[torch.autograd.Function], *args: Any) -> torch.Tensor:
    return _tensor(function.apply(*args))  # type: ignore[no-untyped-call]


def _tensor(result: Any) -> torch.Tensor:
    """The result of a kernel, typed as a tensor; kernels have no types."""
    tensor: torch.Tensor = result
    return tensor


# ---- checks of arguments


def _needs_gradient(*tensors: torch.Tensor | None) -> bool:
    return torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors)


def _require(impl: str, x: torch.Tensor, *others: torch.Tensor | None) -> None:
    """Raise a `UsageError` unless the kernels support these dtypes, and all tensors are on one supported device."""
    require_known(impl)
    for tensor in (x, *others):
        if tensor is None:
            continue
        if tensor.dtype not in DTYPES:
            raise UsageError(
                f"impl '{impl}' takes float32, float16 and bfloat16, and this is {tensor.dtype}. "
                "Convert it, or use impl='torch'."
            )
        if tensor.device != x.device:
            raise UsageError(f"tensors lie on {x.device} and on {tensor.device}. Move them to one device.")
    _require_device(impl, x.device.type)


def _require_device(impl: str, device_type: str) -> None:
    if device_type == "cuda" or (impl == "triton" and is_interpreted()):
        return
    hint = ", or set TRITON_INTERPRET=1 before Python starts" if impl == "triton" else ""
    raise UsageError(
        f"impl '{impl}' needs tensors on a CUDA device, and these are on {device_type}. "
        f"Move them, or use impl='torch'{hint}."
    )


def _require_approximation(approximate: str) -> None:
    if approximate not in _APPROXIMATIONS:
        raise unknown_name("approximation of GELU", approximate, _APPROXIMATIONS)


def _reduction(name: str) -> int:
    if name not in REDUCTIONS:
        raise unknown_name("reduction", name, REDUCTIONS)
    return REDUCTIONS[name]


def _normalized_shape(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    given: Sequence[int] | None,
) -> tuple[int, ...]:
    like = weight if weight is not None else bias
    shape = tuple(given) if given is not None else tuple(like.shape) if like is not None else tuple(x.shape[-1:])
    if not shape or tuple(x.shape[-len(shape) :]) != shape:
        raise UsageError(
            f"x of shape {tuple(x.shape)} cannot be normalised over {shape}: its last sizes must be these."
        )
    for name, item in (("weight", weight), ("bias", bias)):
        if item is not None and tuple(item.shape) != shape:
            raise UsageError(f"{name} has shape {tuple(item.shape)}; it must be {shape}, what is normalised over.")
    return shape


def _require_targets(x: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None) -> None:
    if x.dim() == 0:
        raise UsageError("cross_entropy: x has no dimension of classes. Give it one, or two with the batch first.")
    classes_at = 0 if x.dim() == 1 else 1
    by_index = not target.is_floating_point()
    expected = (*x.shape[:classes_at], *x.shape[classes_at + 1 :]) if by_index else tuple(x.shape)
    if tuple(target.shape) != expected:
        kind = "indices" if by_index else "probabilities"
        raise UsageError(f"cross_entropy: {kind} have shape {tuple(target.shape)}; for this x it must be {expected}.")
    if by_index and target.dtype != torch.int64:
        raise UsageError(f"cross_entropy: class indices are {target.dtype}; they must be int64. Convert them.")
    if not by_index and target.requires_grad:
        raise UsageError("cross_entropy: class probabilities get no gradient here. Detach them, or use impl='torch'.")
    if target.device != x.device:
        raise UsageError(f"tensors lie on {x.device} and on {target.device}. Move them to one device.")
    if weight is not None and tuple(weight.shape) != (x.shape[classes_at],):
        raise UsageError(
            f"cross_entropy: weight has shape {tuple(weight.shape)}; one per class is {x.shape[classes_at]}."
        )
