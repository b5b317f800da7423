"""How a folder of kernels names its operator, and back.

A folder named after an overload writes the dot as two underscores: `add.Tensor` is `add__Tensor`, the in-place
`add_.Tensor` is `add___Tensor`. Names are read from the right, so that what is left of the last two underscores
is the operator, its own trailing underscores included. A folder without an overload (`relu`, `add_`, `__and__`)
names the operator alone. The `aten` namespace is never written.

Limit: an overload that itself begins with an underscore or holds two in a row would not come back; `aten` has
none. An operator with two underscores inside its name (`linalg__powsum`) can only be named with its overload.
"""

from __future__ import annotations

import re

_NAME = re.compile(r"_*[A-Za-z][A-Za-z0-9_]*", re.ASCII)


def folder_name(operator: str) -> str:
    """`aten.add.Tensor` -> `add__Tensor`; without an overload, `aten.add` -> `add`."""
    return operator.removeprefix("aten.").replace(".", "__")


def operator_name(folder: str) -> str | None:
    """`add__Tensor` -> `aten.add.Tensor`, `add` -> `aten.add`, None for what can be no operator's name."""
    base, mark, overload = folder.rpartition("__")
    if not (mark and overload):
        return f"aten.{folder}" if _NAME.fullmatch(folder) else None
    if not (_NAME.fullmatch(base) and _NAME.fullmatch(overload)):
        return None
    return f"aten.{base}.{overload}"
