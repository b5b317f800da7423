"""Lists the ATen operators that a function runs, for deciding what a model's results mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def dispatched_operators(call: Callable[[], Any]) -> tuple[Any, frozenset[str]]:
    """What the call returns, and the names of the overloads that it ran. Views are left out: they compute nothing."""
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: set[Any] = set()

    class Watching(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.add(func)
            return func(*args, **(kwargs or {}))

    with torch.no_grad(), Watching():  # type: ignore[no-untyped-call]
        returned = call()
    return returned, frozenset(str(func) for func in seen if not func.is_view)
