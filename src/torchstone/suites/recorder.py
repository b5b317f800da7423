"""Records calls of ATen operators as they happen: their arguments, and ranges and other properties of their values.

A :class:`Recorder` watches a block of code from below autograd and dispatch, where every model consists of calls of
ATen overloads. Calls that differ only in values are one, with a count; the properties of their values (range, order,
definite matrices) are joined. Calls that cannot be described by shapes, dtypes and plain values are counted, with the
reason. Which values such a call may get later is found out by :mod:`torchstone.suites.case_from_recorded_call`.
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
"""Elements of a tensor whose values are remembered one by one."""
_MOST_OFFSET = 4096
"""Of larger storage offsets only the alignment is kept, so that no case needs megabytes of unused memory."""
_ALIGNMENT = 16
_BROUGHT = 1 << 16
"""Tensors of up to this many elements are copied to the host to look at their values."""
_WITHOUT_VALUES = "made on the meta device, where nothing is computed"
_UNKNOWN = schema.Normal()
"""The fill (how values are drawn) of a tensor for which none has been chosen yet."""


class Unrecordable(Exception):  # noqa: N818 - not an error: a call that cannot be described as data
    """Why a call cannot be written down."""


class ValueProperties(msgspec.Struct, frozen=True):
    """Properties of the values of one tensor argument, over all equal calls."""

    seen: bool = False
    """False: it had no values to look at (traced without data, or without elements)."""
    least: float = math.inf
    greatest: float = -math.inf
    increasing: bool = True
    """Strictly, along the last dimension."""
    definite: bool = False
    """Symmetric matrices without a negative eigenvalue."""
    values: tuple[bool | int | float, ...] | None = None
    """The values in the first call, if they are few."""

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


_NOT_SEEN = ValueProperties()


class RecordedCall(msgspec.Struct, frozen=True):
    """Calls that differ only in the values of tensors, as one."""

    operator: str
    args: tuple[schema.Argument, ...]
    kwargs: dict[str, schema.Argument]
    properties: tuple[ValueProperties, ...]
    """Of the tensor arguments in their order, lists flattened."""
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
    """Records the calls made while it is entered. The calls run as if it were not there.

    Modes belong to a thread. A thread that asks for a backward pass hands its modes to autograd's threads
    (`at::ThreadLocalState` of its `GraphTask`). With several devices these run at once: hence the lock. Threads that
    the program itself starts are not recorded.
    """

    def __init__(
        self,
        wanted: Callable[[str], bool] = lambda operator: True,
        *,
        looks_at_values: bool = True,
        looks_at_floats: int | None = None,
        most_variants: int | None = None,
    ) -> None:
        """``looks_at_floats``: in how many of equal calls floating-point values are looked at; None: in all. Integers
        are looked at in each, since among them are indices, and an index that was not seen may be the largest.
        ``most_variants``: how many calls that differ only in floating-point scalars are told apart; None: all. An
        optimizer has new ones in every step.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: dict[str, RecordedCall] = {}
        self.unrecorded: Counter[tuple[str, str]] = Counter()
        """(operator, reason) of calls that are not among them."""
        self.first: dict[str, int] = {}
        """Key of `calls` -> number of its first call among all that were made, wanted or not."""
        self._made = 0
        self._wanted = wanted
        self._looks = looks_at_values
        self._float_looks = math.inf if looks_at_floats is None else looks_at_floats
        self._most_variants = most_variants
        self._variants: dict[str, list[str]] = {}
        """Key without the floating-point scalars -> keys with them."""
        self._lock = threading.Lock()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        operator = str(func)
        self._made += 1
        if not self._is_of_interest(func, operator):
            return func(*args, **kwargs)
        try:
            written = write_down(operator, args, kwargs)
        except Unrecordable as error:
            self._count_unrecorded(operator, str(error))
            return func(*args, **kwargs)
        if self._most_variants is not None and written.key not in self.calls:
            written = self._limited(written, self._most_variants)
        properties = self._properties(written)
        result = func(*args, **kwargs)
        self._keep(written, properties, result)
        return result

    def _limited(self, written: Written, most: int) -> Written:
        """Under the key of the first of its variants, if there are enough of them."""
        call = written.call
        blurred = [_without_floats(argument) for argument in (*call.args, *call.kwargs.values())]
        with self._lock:
            keys = self._variants.setdefault(schema.content_key(call.operator, blurred, list(call.kwargs)), [])
            if len(keys) >= most:
                return written._replace(key=keys[0])
            keys.append(written.key)
        return written

    def _properties(self, written: Written) -> tuple[ValueProperties, ...]:
        """The properties of the arguments' values. To be called before the call is made, which may write to them."""
        known = self.calls.get(written.key)
        seen = known.count if known is not None else 0
        return tuple(
            properties_of(tensor, listed=seen == 0)
            if self._looks and (seen < self._float_looks or _is_whole(tensor))
            else _NOT_SEEN
            for tensor in written.tensors
        )

    def _keep(self, written: Written, properties: tuple[ValueProperties, ...], result: Any) -> None:
        with self._lock:
            known = self.calls.get(written.key)
            if known is not None:
                properties = tuple(a.joined(b) for a, b in zip(known.properties, properties, strict=True))
                self.calls[written.key] = msgspec.structs.replace(known, properties=properties, count=known.count + 1)
                return
            self.first[written.key] = self._made
            share = _share_of_nan(operators.flatten_outputs(result)) if self._looks else 0.0
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
    """Whether calls of it are neither recorded nor counted."""
    namespace = operator.partition(".")[0]
    if namespace != "aten":
        return namespace in ("prim", "prims", "profiler")
    return is_of(operator, "hands_on")


def write_down(operator: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Written:
    """A call as data, without a look at any value. Raises :class:`Unrecordable`."""
    tensors: list[torch.Tensor] = []
    told = tuple(_argument(value, tensors) for value in args)
    named = {name: _argument(value, tensors) for name, value in kwargs.items()}
    call = RecordedCall(operator, told, named, (_NOT_SEEN,) * len(tensors))
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
        _UNKNOWN,
        strides=None if dense else tuple(int(stride) for stride in value.stride()),
        offset=offset if offset <= _MOST_OFFSET else offset % _ALIGNMENT,
    )


def _is_whole(tensor: torch.Tensor) -> bool:
    return not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype is torch.bool)


def properties_of(tensor: torch.Tensor, *, listed: bool = True) -> ValueProperties:
    """Looks at the values; on a device this waits for them. ``listed``: keep the values themselves if they are few."""
    if not _can_be_read(tensor) or not tensor.numel():
        return _NOT_SEEN
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_complex():
        return _NOT_SEEN
    plain = tensor.detach()
    if plain.numel() <= _BROUGHT:
        plain = plain.cpu()  # one wait instead of a dozen
    known = _listed(plain) if listed else None
    ends = _finite_ends(plain)
    if ends is None:
        return ValueProperties(seen=True, values=known)
    return ValueProperties(
        seen=True,
        least=ends[0],
        greatest=ends[1],
        increasing=bool((plain.diff(dim=-1) > 0).all()) if _is_whole(plain) and plain.dim() else True,
        definite=plain.is_floating_point() and _is_definite(plain),
        values=known,
    )


def _can_be_read(tensor: torch.Tensor) -> bool:
    """Whether values can be read: not while a CUDA graph is captured, which waiting for values would end."""
    if isinstance(tensor, FakeTensor) or tensor.device.type == "meta":
        return False
    return not (tensor.is_cuda and torch.cuda.is_current_stream_capturing())


def _finite_ends(tensor: torch.Tensor) -> tuple[float, float] | None:
    """The least and the greatest finite number; None: there is none."""
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


def _listed(tensor: torch.Tensor) -> tuple[bool | int | float, ...] | None:
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
            worst = max(worst, float((leaf.cpu() if leaf.numel() <= _BROUGHT else leaf).isnan().double().mean()))
    return worst
