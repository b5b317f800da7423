"""Records calls of ATen operators as they happen: their arguments, and ranges and other properties of their values.

A :class:`Recorder` is a dispatch mode below autograd, where every model consists of calls of ATen overloads. Calls that
differ only in values are recorded once, with a count; the properties of their values (range, order, definite matrices)
are joined. Calls that cannot be described by shapes, dtypes and plain values are counted, with the reason.
:mod:`torchstone.suites.case_from_recorded_call` finds values for the recorded calls later.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass

from torchstone import operators, schema
from torchstone.operator_categories import is_of

MOST_GIVEN = 1024
"""Most elements of a tensor whose single values are kept."""
_MOST_OFFSET = 4096
"""Largest storage offset (elements) that is kept. Of a larger one the remainder modulo `_ALIGNMENT` is kept, so that no
case needs megabytes of unused memory."""
_ALIGNMENT = 16
_COPY_TO_HOST_ELEMENTS = 1 << 16
"""Most elements of a tensor that is copied to the host before its values are read."""
_WITHOUT_VALUES = "made on the meta device, where nothing is computed"
_UNKNOWN_FILL = schema.Normal()
"""The fill (how values are drawn) of a tensor for which none has been chosen yet."""


class Unrecordable(Exception):  # noqa: N818 - not an error: a call that cannot be described as data
    """A call cannot be described as data; the text is the reason."""


class ValueProperties(msgspec.Struct, frozen=True):
    """Properties of the values of one tensor argument, over all equal calls."""

    seen: bool = False
    """Whether values were read. False: they were not asked for, or the tensor has no values that can be read."""
    least: float = math.inf
    greatest: float = -math.inf
    increasing: bool = True
    """Whether integers increase strictly along the last dimension."""
    definite: bool = False
    """Whether the tensor holds symmetric matrices without a negative eigenvalue."""
    values: tuple[bool | int | float, ...] | None = None
    """The values in the first call, if they are finite and at most `MOST_GIVEN`."""

    def joined(self, other: ValueProperties) -> ValueProperties:
        """The properties that hold for both."""
        if not other.seen or not self.seen:
            return self if self.seen else other
        return ValueProperties(
            seen=True,
            least=min(self.least, other.least),
            greatest=max(self.greatest, other.greatest),
            increasing=self.increasing and other.increasing,
            definite=self.definite and other.definite,
            values=self.values,
        )


_NO_PROPERTIES = ValueProperties()


class RecordedCall(msgspec.Struct, frozen=True):
    """One record for all calls that differ only in the values of tensors."""

    operator: str
    args: tuple[schema.Argument, ...]
    kwargs: dict[str, schema.Argument]
    properties: tuple[ValueProperties, ...]
    """Properties of the values of each tensor argument, in order, with lists flattened."""
    count: int = 1
    unnumbered: float = 0.0
    """The share of NaN in the floating-point results of the first call."""
    device: str = "cpu"
    """The type of device that the first call ran on."""


class Written(NamedTuple):
    """A call as data, and the tensors that it was given."""

    key: str
    """The same for calls that differ only in the values of tensors."""
    call: RecordedCall
    tensors: tuple[torch.Tensor, ...]


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records the calls that are made while it is entered, without changing them.

    Modes belong to a thread. A thread that asks for a backward pass hands its modes to autograd's threads
    (`at::ThreadLocalState` of its `GraphTask`). With several devices these run at once: hence the lock. Threads that
    the program itself starts are not recorded.
    """

    def __init__(
        self,
        wanted: Callable[[str], bool] = lambda operator: True,
        *,
        reads_values: bool = True,
        float_reads: int | None = None,
        most_variants: int | None = None,
    ) -> None:
        """``float_reads``: number of equal calls in which floating-point values are read; None: all. Integers are
        read in every call: they may be indices, and an index that was not read may be the largest.

        ``most_variants``: most calls kept that differ only in floating-point scalars; None: all. An optimizer has new
        scalars in every step.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: dict[str, RecordedCall] = {}
        self.unrecorded: Counter[tuple[str, str]] = Counter()
        """(operator, reason) -> number of calls that could not be recorded."""
        self.first: dict[str, int] = {}
        """Key of `calls` -> number of its first call among all that were made, wanted or not."""
        self._made = 0
        self._wanted = wanted
        self._reads_values = reads_values
        self._float_reads = math.inf if float_reads is None else float_reads
        self._most_variants = most_variants
        self._variants: dict[str, list[str]] = {}
        """Key without the floating-point scalars -> keys with them."""
        self._lock = threading.Lock()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        operator = str(func)
        with self._lock:  # autograd's threads call, too
            self._made += 1
            number = self._made
        if not self._is_of_interest(func, operator):
            return func(*args, **kwargs)
        try:
            written = write_down(operator, args, kwargs)
        except Unrecordable as error:
            self._count_unrecorded(operator, str(error))
            return func(*args, **kwargs)
        if self._most_variants is not None and written.key not in self.calls:
            written = self._with_limited_variants(written, self._most_variants)
        properties = self._properties(written)
        result = func(*args, **kwargs)
        self._keep(written, properties, result, number)
        return result

    def _with_limited_variants(self, written: Written, most: int) -> Written:
        """The call; under the key of its first variant if ``most`` variants (other float scalars) are known."""
        call = written.call
        without_floats = [_without_floats(argument) for argument in (*call.args, *call.kwargs.values())]
        with self._lock:
            keys = self._variants.setdefault(schema.content_key(call.operator, without_floats, list(call.kwargs)), [])
            if len(keys) >= most:
                return written._replace(key=keys[0])
            keys.append(written.key)
        return written

    def _properties(self, written: Written) -> tuple[ValueProperties, ...]:
        """The properties of the arguments' values. Must run before the recorded call, which may write to them."""
        known = self.calls.get(written.key)
        seen = known.count if known is not None else 0
        return tuple(
            properties_of(tensor, listed=seen == 0)
            if self._reads_values and (seen < self._float_reads or _is_integer(tensor))
            else _NO_PROPERTIES
            for tensor in written.tensors
        )

    def _keep(self, written: Written, properties: tuple[ValueProperties, ...], result: Any, number: int) -> None:
        with self._lock:
            known = self.calls.get(written.key)
            if known is not None:
                properties = tuple(a.joined(b) for a, b in zip(known.properties, properties, strict=True))
                self.calls[written.key] = msgspec.structs.replace(known, properties=properties, count=known.count + 1)
                return
            self.first[written.key] = min(number, self.first.get(written.key, number))
            share = _share_of_nan(operators.flatten_outputs(result)) if self._reads_values else 0.0
            device = next((tensor.device.type for tensor in written.tensors if tensor.device.type != "cpu"), "cpu")
            self.calls[written.key] = msgspec.structs.replace(
                written.call, properties=properties, unnumbered=share, device=device
            )

    def _count_unrecorded(self, operator: str, reason: str) -> None:
        with self._lock:
            self.unrecorded[operator, reason] += 1

    def _is_of_interest(self, func: Any, operator: str) -> bool:
        if not self._wanted(operator) or is_bookkeeping(operator):
            return False
        namespace = operator.partition(".")[0]
        if namespace != "aten":
            self._count_unrecorded(operator, f"namespace '{namespace}' is not ATen's")
        return namespace == "aten"


def is_bookkeeping(operator: str) -> bool:
    """Whether calls of the operator are neither recorded nor counted."""
    namespace = operator.partition(".")[0]
    if namespace != "aten":
        return namespace in ("prim", "prims", "profiler")
    return is_of(operator, "hands_on")


def write_down(operator: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Written:
    """Describe a call as data without reading any value. Raises :class:`Unrecordable`."""
    tensors: list[torch.Tensor] = []
    told = tuple(_argument(value, tensors) for value in args)
    named = {name: _argument(value, tensors) for name, value in kwargs.items()}
    call = RecordedCall(operator, told, named, (_NO_PROPERTIES,) * len(tensors))
    return Written(schema.content_key(operator, told, named), call, tuple(tensors))


def _argument(value: Any, tensors: list[torch.Tensor]) -> schema.Argument:
    match value:
        case torch.Tensor():
            recipe = _tensor(value)
            tensors.append(value)
            return recipe
        case list() | tuple():
            return schema.Sequence(tuple(_argument(item, tensors) for item in value))
        case float() if not math.isfinite(value):
            return schema.NonFinite("nan" if math.isnan(value) else "inf" if value > 0 else "-inf")
        case bool() | int() | float() | str() | None:
            return schema.Scalar(value)
        case complex():
            return schema.Complex(value.real, value.imag)
        case torch.dtype():
            return schema.DType(str(value).removeprefix("torch."))
        case torch.layout():
            return schema.Layout(str(value).removeprefix("torch."))
        case torch.memory_format():
            return schema.MemoryFormat(str(value).removeprefix("torch."))
        case torch.device(type="meta"):
            raise Unrecordable(_WITHOUT_VALUES)
        case torch.device():
            return schema.JudgedDevice()
        case torch.SymInt() | torch.SymFloat() | torch.SymBool():
            raise Unrecordable("an argument whose value is not known when it is traced")
        case _:
            raise Unrecordable(f"an argument of type {type(value).__name__}")


def _without_floats(argument: schema.Argument) -> schema.Argument:
    match argument:
        case schema.Scalar(value=float()) | schema.NonFinite():
            return schema.Scalar("a float")
        case schema.Sequence(items=items):
            return schema.Sequence(tuple(_without_floats(item) for item in items))
        case _:
            return argument


def _tensor(value: torch.Tensor) -> schema.Tensor:
    if value.layout is not torch.strided:
        raise Unrecordable(f"a tensor of layout {str(value.layout).removeprefix('torch.')}")
    if value.device.type == "meta":
        raise Unrecordable(_WITHOUT_VALUES)
    if is_traceable_wrapper_subclass(value):
        raise Unrecordable(f"a tensor of type {type(value).__name__}")
    if value.is_quantized or value.is_nested:
        raise Unrecordable("a quantized tensor" if value.is_quantized else "a nested tensor")
    shape = tuple(int(size) for size in value.shape)
    dense = 0 in shape or value.is_contiguous()
    offset = int(value.storage_offset())
    return schema.Tensor(
        shape,
        str(value.dtype).removeprefix("torch."),
        _UNKNOWN_FILL,
        strides=None if dense else tuple(int(stride) for stride in value.stride()),
        offset=offset if offset <= _MOST_OFFSET else offset % _ALIGNMENT,
    )


def _is_integer(tensor: torch.Tensor) -> bool:
    return not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype is torch.bool)


def properties_of(tensor: torch.Tensor, *, listed: bool = True) -> ValueProperties:
    """Read the values and describe them; this waits for a device. ``listed``: keep the values themselves if few."""
    if not _can_be_read(tensor) or not tensor.numel():
        return _NO_PROPERTIES
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_complex():
        return _NO_PROPERTIES
    plain = tensor.detach()
    if plain.numel() <= _COPY_TO_HOST_ELEMENTS:
        plain = plain.cpu()  # one wait instead of a dozen
    known = _few_values(plain) if listed else None
    ends = _finite_ends(plain)
    if ends is None:
        return ValueProperties(seen=True, values=known)
    return ValueProperties(
        seen=True,
        least=ends[0],
        greatest=ends[1],
        increasing=bool((plain.diff(dim=-1) > 0).all()) if _is_integer(plain) and plain.dim() else True,
        definite=plain.is_floating_point() and _is_definite(plain),
        values=known,
    )


def _can_be_read(tensor: torch.Tensor) -> bool:
    """Whether values can be read. While a CUDA graph is captured, waiting for values would end the capture."""
    if isinstance(tensor, FakeTensor) or tensor.device.type == "meta":
        return False
    return not (tensor.is_cuda and torch.cuda.is_current_stream_capturing())


def _finite_ends(tensor: torch.Tensor) -> tuple[float, float] | None:
    """The least and the greatest finite value; None if no value is finite."""
    if tensor.dtype is torch.bool:
        tensor = tensor.to(torch.uint8)
    least, greatest = (float(end) for end in tensor.aminmax())
    if math.isfinite(least) and math.isfinite(greatest):
        return least, greatest
    finite = tensor[tensor.isfinite()]  # a copy: only for those that need it
    if not finite.numel():
        return None
    least, greatest = (float(end) for end in finite.aminmax())
    return least, greatest


def _few_values(tensor: torch.Tensor) -> tuple[bool | int | float, ...] | None:
    if tensor.numel() > MOST_GIVEN:
        return None
    values = tensor.flatten().tolist()
    return tuple(values) if all(math.isfinite(value) for value in values) else None


def _is_definite(tensor: torch.Tensor) -> bool:
    if tensor.dim() < 2 or tensor.shape[-1] != tensor.shape[-2] or not 2 <= tensor.shape[-1] <= 64:
        return False
    wide = tensor.double()
    if not torch.allclose(wide, wide.mT) or not bool(wide.isfinite().all()):
        return False
    return bool((torch.linalg.eigvalsh(wide) >= -1e-6).all())


def _share_of_nan(leaves: Iterable[Any]) -> float:
    """The largest share of NaN in a result; 0 for results without values."""
    worst = 0.0
    for leaf in leaves:
        if not isinstance(leaf, torch.Tensor) or not _can_be_read(leaf):
            continue
        if leaf.layout is torch.strided and (leaf.is_floating_point() or leaf.is_complex()) and leaf.numel():
            worst = max(
                worst, float((leaf.cpu() if leaf.numel() <= _COPY_TO_HOST_ELEMENTS else leaf).isnan().double().mean())
            )
    return worst
