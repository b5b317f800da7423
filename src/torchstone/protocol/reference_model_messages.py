"""Messages between the judge and the worker that runs the reference `Model` of a KernelBench problem."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from torchstone.protocol.tensor_places import Size, Sizes

OperatorText = Annotated[str, msgspec.Meta(max_length=200)]


class ModelTensor(msgspec.Struct, frozen=True, array_like=True):
    """A tensor among the arguments or results of a model: a view of one stretch, a flat piece of memory."""

    stretch: Size
    """Number of the stretch. Those of the arguments come first, in order, then new ones."""
    dtype: str
    shape: Sizes
    strides: Sizes
    offset: Size = 0
    """Number of elements in the stretch before the tensor's first element."""


class ModelInput(msgspec.Struct, frozen=True):
    """An argument of a model beside its weights: a tensor, a list of them, or a plain value."""

    tensor: int | None = None
    tensors: tuple[int, ...] | None = None
    value: Any = None


class CallModel(msgspec.Struct, frozen=True, tag="call_model"):
    """Call the loaded problem's model for the judge: with the problem's own dtypes, in float64, or on the meta device.

    The arguments lie one after the other in the memory that comes with this. Only sent to a worker for problems.
    """

    token: str
    device_type: str
    tensors: tuple[ModelTensor, ...]
    """Tensors of the weights, then of the inputs."""
    offsets_bytes: tuple[int, ...]
    """Offset of each tensor's stretch in the memory."""
    weights: int
    """Number of tensors that are weights."""
    inputs: tuple[ModelInput, ...]
    arena_bytes: int = 0
    device_handle: str | None = None
    default_dtype: str = "float32"
    counts_flops: bool = False
    watches_memory: bool = False
    lists_operators: bool = False


class MakeWeights(msgspec.Struct, frozen=True, tag="make_weights"):
    """Create the weights of the loaded problem's model as the problem does."""

    token: str


class FetchResults(msgspec.Struct, frozen=True, tag="fetch_results"):
    """Write the new stretches of the last reply into the memory that comes with this, and drop them."""

    token: str
    offsets_bytes: tuple[int, ...]
    arena_bytes: int
    device_handle: str | None = None


class ModelStretch(msgspec.Struct, frozen=True, array_like=True):
    """A flat piece of memory with results in it."""

    elements: Size
    dtype: str


class ModelResults(msgspec.Struct, frozen=True, tag="model_results"):
    """Describes what a model returned. The judge fetches the new stretches with ``FetchResults``."""

    token: str
    results: tuple[ModelTensor, ...]
    stretches: tuple[ModelStretch, ...]
    """New stretches, numbered after those of the arguments."""
    flops: Size | None = None
    peak_memory_bytes: Size | None = None
    operators: tuple[OperatorText, ...] = ()
    """Operators that computed the results, if the command has ``lists_operators``."""
