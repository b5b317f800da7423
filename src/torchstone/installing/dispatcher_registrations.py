"""Registers kernels in torch's dispatcher, one per overload and device, and removes them again.

A slot (one overload on one device) is registered with its first kernel and removed with its last. In between the newest
kernel serves. So installations nest without registering twice, and may end in any order. All threads of the process
see the same kernels.
"""

from __future__ import annotations

import threading
import warnings
from collections import deque
from collections.abc import Callable
from typing import Any

import torch

from torchstone.errors import KernelError, UsageError
from torchstone.installing import composite_operators
from torchstone.installing.loading import Loaded
from torchstone.installing.operator_schema_checks import Contract
from torchstone.operators import resolve

DISPATCH_KEYS = {"cpu": "CPU", "cuda": "CUDA"}

_lock = threading.RLock()
_retired: deque[object] = deque(maxlen=1024)
"""The last functions that were unregistered. They are kept alive because another thread may be waiting for the GIL to
enter one, and torch holds no reference for it."""
_slots: dict[tuple[str, str], Slot] = {}


class _Running(threading.local):
    """The calls that are in progress in this thread, the outermost first."""

    def __init__(self) -> None:
        self.kernels: list[Kernel] = []
        self.originals: list[str] = []
        """Operators that torch's own code computes now, although a kernel is registered for them."""


_running = _Running()


class Kernel:
    """A function that replaces one overload, and how often it was called."""

    def __init__(self, operator: str, label: str, loaded: Loaded, fallback: bool) -> None:
        self.operator = operator
        self.label = label
        self.function = loaded.function
        self.unload = loaded.unload
        self.fallback = fallback
        self.calls = 0
        """All calls of the function, those that it refused included."""
        self.refused = 0
        """Calls in which it raised NotImplementedError and torch's own operator served instead."""
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"kernel {self.label} of {self.operator}"

    def count(self, calls: int = 0, refused: int = 0) -> None:
        with self._lock:
            self.calls += calls
            self.refused += refused


class Slot:
    """One overload on one device."""

    def __init__(self, operator: str, device_type: str) -> None:
        self.operator = operator
        self.device_type = device_type
        self._overload = resolve(operator)
        self._key = DISPATCH_KEYS[device_type]
        self._keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, self._key))
        self._contract = Contract(self._overload)
        self._kernels: tuple[Kernel, ...] = ()
        self._original = torch.library.get_kernel(self._overload, self._key)
        self._composed = composite_operators.is_composed(self._overload, self._key)
        self._library: torch.library.Library | None = None

    def add(self, kernel: Kernel) -> None:
        self._kernels += (kernel,)
        if self._library is None:
            self._library = self._registered()

    def remove(self, kernel: Kernel) -> bool:
        """Remove the kernel, and the registration with the last one. Returns whether no kernel is left."""
        self._kernels = tuple(item for item in self._kernels if item is not kernel)
        if not self._kernels and self._library is not None:
            _retired.extend(torch.library.get_kernel(self._overload, key) for key in self._registered_keys())
            self._library._destroy()  # type: ignore[no-untyped-call]
            self._library = None
        return not self._kernels

    def call_original(self, *args: Any, **kwargs: Any) -> Any:
        """Call torch's own operator. Its code may call the operator again, and such calls must not reach the kernel:
        ``copy_`` between devices makes one for the part that needs no conversion."""
        _running.originals.append(self.operator)
        try:
            return self._original.call_boxed(self._keys, *self._contract.with_tensors(args), **kwargs)
        finally:
            _running.originals.pop()

    def _registered_keys(self) -> tuple[str, ...]:
        return (f"Autograd{self._key}", self._key) if self._composed else (self._key,)

    def _registered(self) -> torch.library.Library:
        serve = {self._key: self._below_autograd, f"Autograd{self._key}": self._above_autograd}
        library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of the first kernel that is overridden: that is the purpose
            impl: Callable[..., None] = library.impl
            for key in self._registered_keys():
                impl(self._overload._name, serve[key], key)
        return library

    def _above_autograd(self, *args: Any, **kwargs: Any) -> Any:
        return composite_operators.call_with_gradient(self._serve, self.call_original, args, kwargs)

    def _below_autograd(self, *args: Any, **kwargs: Any) -> Any:
        return self._serve(args, kwargs)

    def _serve(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        kernels = self._kernels
        # No kernels: another thread took them out after this call was dispatched.
        if not kernels or self.operator in _running.originals:
            return self.call_original(*args, **kwargs)
        kernel = kernels[-1]
        kernel.count(calls=1)
        self._stop_recursion()
        args = self._contract.with_tensors(args)
        result = self._run(kernel, args, kwargs)
        breach = self._contract.breach(result, args, kwargs)
        if breach:
            raise KernelError(f"{kernel!r}: {breach}.")
        return result

    def _run(self, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        _running.kernels.append(kernel)
        try:
            # Operators without a derivative formula come here with autograd still on.
            with torch._C._AutoDispatchBelowAutograd():
                return kernel.function(*args, **kwargs)
        except NotImplementedError as error:
            if not kernel.fallback:
                raise _kernel_error(error, kernel) from error
            kernel.count(refused=1)
            return self.call_original(*args, **kwargs)
        except (KernelError, torch.OutOfMemoryError) as error:
            error.add_note(f"in {kernel!r}")  # keeps its type and message, which callers handle
            raise
        except Exception as error:
            raise _kernel_error(error, kernel) from error
        finally:
            _running.kernels.pop()

    def _stop_recursion(self) -> None:
        running = _running.kernels
        if all(item.operator != self.operator for item in running):
            return
        chain = " -> ".join([*(item.label for item in running), self.operator])
        raise KernelError(
            f"{running[-1]!r} calls {self.operator}, which is being computed already ({chain}). Compute it from other "
            f"operators, or reach torch's own with torchstone.installing.original('{self.operator}')."
        )


def _kernel_error(error: Exception, kernel: Kernel) -> KernelError:
    return KernelError(f"{kernel!r} raised {type(error).__name__}: {error}")


def install(kernel: Kernel, device_type: str) -> None:
    """Register the kernel for its overload on that device. It takes precedence over kernels installed before."""
    place = kernel.operator, device_type
    with _lock:
        slot = _slots.get(place) or Slot(*place)
        slot.add(kernel)
        _slots[place] = slot


def uninstall(kernel: Kernel, device_type: str) -> None:
    """Remove the kernel. The newest of the other kernels serves again, or torch's own operator if there is none."""
    place = kernel.operator, device_type
    with _lock:
        if place in _slots and _slots[place].remove(kernel):
            del _slots[place]


def exists(operator: str) -> bool:
    """Whether the dispatcher knows the overload. It lacks TorchScript's overloads of numbers (``aten.mul.default``)."""
    try:
        return torch._C._dispatch_has_kernel(resolve(operator)._name)
    except UsageError:
        return False


def installable(operator: str, device_type: str) -> str:
    """Why no kernel can replace the overload on that device; empty: one can."""
    overload = resolve(operator)
    key = DISPATCH_KEYS[device_type]
    if composite_operators.is_composed(overload, key):
        return composite_operators.obstacle(overload)
    try:
        torch.library.get_kernel(overload, key)
    except RuntimeError:
        return f"torch has no kernel of it for {device_type}"
    return ""


def original(operator: str) -> Callable[..., Any]:
    """Torch's own operator, also while a kernel replaces it. For kernels that compute only some calls themselves."""
    overload = resolve(operator)

    def call(*args: Any, **kwargs: Any) -> Any:
        tensors = (item for item in (*args, *kwargs.values()) if isinstance(item, torch.Tensor))
        devices = [item.device.type for item in tensors]
        device_type = "cuda" if "cuda" in devices else "cpu"
        slot = _slots.get((operator, device_type))
        return overload(*args, **kwargs) if slot is None else slot.call_original(*args, **kwargs)

    return call
