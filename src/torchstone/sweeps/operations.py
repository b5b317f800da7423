"""Defines the operations of a sweep: inputs, reference, implementations by name, and bytes moved."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.nn import functional

from torchstone import kernels
from torchstone.schema.sweep import SweepPoint
from torchstone.sweeps.memory import Footprint
from torchstone.sweeps.tensor_pool import TensorPool

EPSILON = 1e-5
"""Epsilon of LayerNorm, torch's default."""

Function = Callable[..., Any]
Inputs = tuple[Any, ...]


class Moved(NamedTuple):
    """Bytes that any implementation must move in one call."""

    read_bytes: int
    written_bytes: int


@dataclass(frozen=True)
class Operation:
    """An operation of a sweep, with its reference and implementations."""

    name: str
    make_inputs: Callable[[SweepPoint, TensorPool, int], list[Inputs]]
    """(point, pool, copies) -> arguments of that many calls, each with its own memory."""
    reference: Function
    implementations: Mapping[str, Function] = field(default_factory=dict)
    """Name -> function, besides `PyTorch` (the reference) and `Compile` (the compiled reference)."""
    differentiated: tuple[int, ...] | None = None
    """Positions of arguments that require gradients in a backward pass. None: every floating-point tensor."""
    moved: Callable[[SweepPoint, str], Moved] | None = None
    """(point, ``fwd`` or ``bwd``) -> bytes moved. None: every argument and result is counted once."""
    pointwise: bool = False
    """Whether each element of the result depends on one element of the input, without sums."""
    lacking: Mapping[str, str] = field(default_factory=dict)
    """Implementation that lacks this operation -> reason."""
    lacking_by_mode: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """The same for one mode alone: (implementation, mode) -> reason."""

    def function(self, implementation: str) -> Function | None:
        """The function of an implementation; None: the operation lacks it."""
        if implementation in self.lacking:
            return None
        return self.reference if implementation == "PyTorch" else self.implementations.get(implementation)

    def why_lacking(self, implementation: str, mode: str) -> str:
        """Why the operation lacks the implementation in this mode; empty if it has it."""
        by_mode = self.lacking_by_mode.get((implementation, mode), "")
        return by_mode or self.lacking.get(implementation, "")

    def moved_bytes(self, point: SweepPoint) -> Moved | None:
        """Bytes that one call in the point's mode must move; None if not declared."""
        if self.moved is None:
            return None
        passes = [self.moved(point, part) for part in point.mode.split("+")]
        return Moved(sum(each.read_bytes for each in passes), sum(each.written_bytes for each in passes))

    def footprint(self, point: SweepPoint) -> Footprint | None:
        """Memory of one call; None if it is not known before the inputs are made."""
        if self.moved is None:
            return None
        item = dtype_of(point).itemsize
        forward = self.moved(point, "fwd")
        if point.mode == "fwd":
            return Footprint(forward.read_bytes, forward.written_bytes, item)
        backward = self.moved(point, "bwd")
        # Inputs include the gradient of the result. Every implementation holds its own forward result.
        held = forward.read_bytes + forward.written_bytes
        return Footprint(held, forward.written_bytes + backward.written_bytes, item)


def dtype_of(point: SweepPoint) -> torch.dtype:
    """The point's dtype as a `torch.dtype`."""
    found: torch.dtype = getattr(torch, point.dtype)
    return found


def shape_of(point: SweepPoint) -> tuple[int, int, int]:
    """Shape of the tensor that the operations work on."""
    return point.batch_size, point.sequence_length, point.tensor_dimension


def _elements(point: SweepPoint) -> int:
    return math.prod(shape_of(point))


def _rows(point: SweepPoint) -> int:
    return point.batch_size * point.sequence_length


# ---- inputs


def _activations(point: SweepPoint, pool: TensorPool, copies: int) -> list[Inputs]:
    return [(x,) for x in pool.normal("x", shape_of(point), dtype_of(point), copies)]


def _layer_norm_inputs(point: SweepPoint, pool: TensorPool, copies: int) -> list[Inputs]:
    """Inputs of LayerNorm. All copies share weight and bias, a few kilobytes that are in the cache in a model, too."""
    dtype, shape = dtype_of(point), (point.tensor_dimension,)
    ((weight,), (bias,)) = (pool.normal(role, shape, dtype, 1) for role in ("weight", "bias"))
    return [(x, weight, bias) for x in pool.normal("x", shape_of(point), dtype, copies)]


def _mse_inputs(point: SweepPoint, pool: TensorPool, copies: int) -> list[Inputs]:
    dtype, shape = dtype_of(point), shape_of(point)
    return list(zip(pool.normal("x", shape, dtype, copies), pool.normal("target", shape, dtype, copies), strict=True))


def _cross_entropy_inputs(point: SweepPoint, pool: TensorPool, copies: int) -> list[Inputs]:
    rows = _rows(point)
    logits = pool.normal("x", shape_of(point), dtype_of(point), copies)
    classes = pool.integers("classes", (rows,), point.tensor_dimension, copies)
    return [(x.view(rows, -1), target) for x, target in zip(logits, classes, strict=True)]


# ---- bytes


def _layer_norm_moved(point: SweepPoint, part: str) -> Moved:
    item = dtype_of(point).itemsize
    whole, parameters, statistics = _elements(point) * item, point.tensor_dimension * item, 2 * 4 * _rows(point)
    if part == "fwd":
        return Moved(whole + 2 * parameters, whole)
    return Moved(2 * whole + parameters + statistics, whole + 2 * parameters)


def _activation_moved(point: SweepPoint, part: str) -> Moved:
    whole = _elements(point) * dtype_of(point).itemsize
    return Moved(whole if part == "fwd" else 2 * whole, whole)


def _mse_moved(point: SweepPoint, part: str) -> Moved:
    item = dtype_of(point).itemsize
    whole = _elements(point) * item
    return Moved(2 * whole, item) if part == "fwd" else Moved(2 * whole + item, whole)


def _cross_entropy_moved(point: SweepPoint, part: str) -> Moved:
    item = dtype_of(point).itemsize
    whole, classes = _elements(point) * item, 8 * _rows(point)
    return Moved(whole + classes, item) if part == "fwd" else Moved(whole + classes + item, whole)


# ---- implementations


def _layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return functional.layer_norm(x, (x.shape[-1],), weight, bias, EPSILON)


def _own_layer_norm(impl: str, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> Any:
    return kernels.layer_norm(x, weight, bias, EPSILON, impl=impl)


def _own_gelu(impl: str, x: torch.Tensor) -> Any:
    return kernels.gelu(x, "none", impl=impl)


def _own_swish(impl: str, x: torch.Tensor) -> Any:
    return kernels.swish(x, impl=impl)


def _own_mse(impl: str, x: torch.Tensor, target: torch.Tensor) -> Any:
    return kernels.mse_loss(x, target, "mean", impl=impl)


def _own_cross_entropy(impl: str, x: torch.Tensor, target: torch.Tensor) -> Any:
    return kernels.cross_entropy(x, target, impl=impl)


def _liger_layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> Any:
    from liger_kernel.ops.layer_norm import LigerLayerNormFunction

    return LigerLayerNormFunction.apply(x, weight, bias, EPSILON)


def _liger_cross_entropy(x: torch.Tensor, target: torch.Tensor) -> Any:
    """The loss. Newer versions of Liger return a tuple, whose first item is the loss."""
    from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction

    found = LigerCrossEntropyFunction.apply(x, target, None)
    return found[0] if isinstance(found, tuple) else found


def _cuda_and_triton(function: Function, **more: Function) -> dict[str, Function]:
    return {"CUDA": partial(function, "cuda"), "Triton": partial(function, "triton"), **more}


def _no_liger(operation: str) -> dict[str, str]:
    return {"Liger": f"Liger has no plain {operation}"}


BUILT_IN: Mapping[str, Operation] = {
    operation.name: operation
    for operation in (
        Operation(
            "LayerNorm",
            _layer_norm_inputs,
            _layer_norm,
            _cuda_and_triton(_own_layer_norm, Liger=_liger_layer_norm),
            moved=_layer_norm_moved,
        ),
        Operation(
            "GELU",
            _activations,
            functional.gelu,
            _cuda_and_triton(_own_gelu),
            moved=_activation_moved,
            pointwise=True,
            lacking=_no_liger("GELU"),
        ),
        Operation(
            "Swish",
            _activations,
            functional.silu,
            _cuda_and_triton(_own_swish),
            moved=_activation_moved,
            pointwise=True,
            lacking=_no_liger("Swish"),
        ),
        Operation(
            "MSE",
            _mse_inputs,
            functional.mse_loss,
            _cuda_and_triton(_own_mse),
            differentiated=(0,),
            moved=_mse_moved,
            lacking=_no_liger("MSE"),
        ),
        Operation(
            "CrossEntropy",
            _cross_entropy_inputs,
            functional.cross_entropy,
            _cuda_and_triton(_own_cross_entropy, Liger=_liger_cross_entropy),
            differentiated=(0,),
            moved=_cross_entropy_moved,
            lacking_by_mode={
                ("Liger", "bwd"): "Liger computes this gradient in its forward pass: use --mode fwd or fwd+bwd"
            },
        ),
    )
}


def why_missing(implementation: str, device_type: str) -> str:
    """Why an implementation cannot be used on this type of device; empty if it can."""
    if implementation in ("PyTorch", "Compile"):
        return ""
    if device_type != "cuda":
        return f"{implementation} needs a CUDA device"
    if implementation == "Liger":
        found = importlib.util.find_spec("liger_kernel")
        return "" if found else "the package liger_kernel is not installed: pip install --no-deps liger-kernel"
    return kernels.why_unavailable(implementation.lower()) or ""


def leaves(found: Any) -> Sequence[torch.Tensor]:
    """The tensors of a result."""
    if isinstance(found, torch.Tensor):
        return (found,)
    if isinstance(found, (tuple, list)):
        return [leaf for item in found for leaf in leaves(item)]
    return ()
