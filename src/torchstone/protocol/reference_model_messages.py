"""Messages between the judge and the worker that runs the reference `Model` of a KernelBench problem."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from torchstone.protocol.tensor_places import Size, Sizes

OperatorText = Annotated[str, msgspec.Meta(max_length=200)]


class ModelTensor(msgspec.Struct, frozen=True, array_like=True):
    """A tensor among the arguments or results of a model: a view of one flat stretch of memory."""

    stretch: Size
    """Which one: first those of the arguments, in order, then new ones."""
    dtype: str
    shape: Sizes
    strides: Sizes
    offset: Size = 0
    """Elements before its first one in the stretch."""


class ModelInput(msgspec.Struct, frozen=True):
    """An argument of a model beside its weights: a tensor, a list of them, or a plain value."""

    tensor: int | None = None
    tensors: tuple[int, ...] | None = None
    value: Any = None


class CallModel(msgspec.Struct, frozen=True, tag="call_model"):
    """Call the problem's model that was loaded, for the judge: as it stands, in float64, or on the meta device.

    Arguments lie in the memory that comes with it, one behind the other. Only asked of a worker for problems.
    """

    token: str
    device_type: str
    tensors: tuple[ModelTensor, ...]
    """Of the weights, then of the inputs."""
    offsets_bytes: tuple[int, ...]
    """Where each lies in the memory."""
    weights: int
    """How many of the tensors are weights."""
    inputs: tuple[ModelInput, ...]
    arena_bytes: int = 0
    device_handle: str | None = None
    default_dtype: str = "float32"
    counts_flops: bool = False
    watches_memory: bool = False
    lists_operators: bool = False


class MakeWeights(msgspec.Struct, frozen=True, tag="make_weights"):
    """Make the weights of the problem's model that was loaded, as the problem makes them."""

    token: str


class FetchResults(msgspec.Struct, frozen=True, tag="fetch_results"):
    """Write the new stretches of memory of the last answer into the memory that comes with this, and forget them."""

    token: str
    offsets_bytes: tuple[int, ...]
    arena_bytes: int
    device_handle: str | None = None


class ModelStretch(msgspec.Struct, frozen=True, array_like=True):
    """A flat stretch of memory that results lie in."""

    elements: Size
    dtype: str


class ModelResults(msgspec.Struct, frozen=True, tag="model_results"):
    """What a model returned. Its new tensors are to be fetched."""

    token: str
    results: tuple[ModelTensor, ...]
    stretches: tuple[ModelStretch, ...]
    """New memory, numbered after that of the arguments."""
    flops: Size | None = None
    peak_memory_bytes: Size | None = None
    operators: tuple[OperatorText, ...] = ()
    """Those that computed the results, if the call asked for them."""
