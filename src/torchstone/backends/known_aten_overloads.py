"""Lists all overloads of ATen operators from torchgen's native_functions.yaml, without importing torch."""

from __future__ import annotations

import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

_LIST = Path("packaged/ATen/native/native_functions.yaml")
_NAME = re.compile(r"^- func: ([A-Za-z0-9_]+)(?:\.([A-Za-z0-9_]+))?\(", re.MULTILINE)
_GENERATED = re.compile(r"^  autogen: (.+)$", re.MULTILINE)
"""Overloads that torch generates from others: ``autogen: add.out, add_.Scalar_out``."""


@cache
def aten_overloads() -> frozenset[str]:
    """Every overload that the installed torch declares, such as `aten.add.Tensor`; empty if the list cannot be read."""
    package = find_spec("torchgen")
    try:
        text = (Path((package.submodule_search_locations or [])[0]) / _LIST).read_text() if package else ""
    except (OSError, IndexError, UnicodeDecodeError):
        text = ""
    generated = (name.strip() for names in _GENERATED.findall(text) for name in names.split(","))
    pairs = [*_NAME.findall(text), *(name.partition(".")[::2] for name in generated)]
    return frozenset(f"aten.{base}.{overload or 'default'}" for base, overload in pairs)
