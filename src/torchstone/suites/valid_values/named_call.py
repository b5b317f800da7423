"""Looks up arguments of a recorded call by name, so that the tables of valid values can use its sizes and numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping

from torchstone.schema import Fill
from torchstone.suites.recorded_call_text import TracedCall, TracedTensor, Value

Fills = Mapping[str, "Fill | tuple[Fill | None, ...] | None"]
"""Argument -> its fill; for a list of tensors one fill for all, or a tuple. None: the fill depends on the dtype."""


class NamedCall:
    """A recorded call whose arguments have names. A missing argument is None, a missing size 1."""

    def __init__(self, names: tuple[str, ...], call: TracedCall) -> None:
        self._values = dict(zip(names, call.args, strict=False)) | call.kwargs

    def __getitem__(self, name: str) -> Value:
        return self._values.get(name)

    def shape(self, name: str) -> tuple[int, ...]:
        value = self[name]
        return value.shape if isinstance(value, TracedTensor) else ()

    def size(self, name: str, dimension: Value = 0) -> int:
        shape = self.shape(name)
        return shape[dimension] if isinstance(dimension, int) and -len(shape) <= dimension < len(shape) else 1

    def elements(self, name: str) -> int:
        return math.prod(self.shape(name))

    def number(self, name: str, otherwise: float) -> float:
        value = self[name]
        return float(value) if isinstance(value, int | float) and abs(value) < math.inf else otherwise

    def integer(self, name: str, otherwise: int) -> int:
        value = self[name]
        return value if isinstance(value, int) else otherwise

    def sizes(self, name: str) -> tuple[int, ...]:
        value = self[name]
        return tuple(item for item in value if isinstance(item, int)) if isinstance(value, tuple) else ()

    def tensors(self, name: str) -> tuple[TracedTensor | None, ...]:
        """The tensors of a list, with None for other items."""
        value = self[name]
        items = value if isinstance(value, tuple) else ()
        return tuple(item if isinstance(item, TracedTensor) else None for item in items)

    def is_whole(self, name: str) -> bool:
        value = self[name]
        return isinstance(value, TracedTensor) and value.dtype.startswith(("int", "uint"))
