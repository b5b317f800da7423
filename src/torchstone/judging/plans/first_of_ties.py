"""Whether a model says which of equal values is meant: torch promises the first for ``argmax`` and ``argmin``.

For other integer results of a model, torch promises no choice among equal values. And what is computed before them
need not be equal where arguments are equal. So the model's operators are recorded: it may move its arguments and ask
for the largest or the least value, and nothing else.
"""

from __future__ import annotations

from typing import Any

import torch

from torchstone import operators
from torchstone.calls.drawing import DrawnCall

_PROMISE_THE_FIRST = frozenset({"argmax", "argmin", "max", "min"})
_MOVE = frozenset({"clone", "_to_copy", "copy_", "contiguous", "_unsafe_view", "detach"})


def says_which_of_equals(call: DrawnCall) -> bool:
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: set[Any] = set()

    class Watching(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.add(func)
            return func(*args, **(kwargs or {}))

    with torch.no_grad(), Watching():  # type: ignore[no-untyped-call]
        operators.resolve(call.case.operator)(*call.args, **call.kwargs)
    names = {func._schema.name.split("::")[1] for func in seen if not func.is_view}
    return bool(names & _PROMISE_THE_FIRST) and names <= _PROMISE_THE_FIRST | _MOVE
