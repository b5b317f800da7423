"""Lists the ATen operators that a function calls, to find out what a model computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def dispatched_operators(call: Callable[[], Any]) -> tuple[Any, frozenset[str]]:
    """The call's result and the names of the overloads that it called, except views, which compute nothing."""
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: set[Any] = set()

    class Watching(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.add(func)
            return func(*args, **(kwargs or {}))

    with torch.no_grad(), Watching():  # type: ignore[no-untyped-call]
        returned = call()
    return returned, frozenset(str(func) for func in seen if not func.is_view)
