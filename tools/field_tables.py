"""Tables of a struct's fields for the documentation: name, default, and the text under the field."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator

import msgspec


def field_rows(struct: type[msgspec.Struct]) -> Iterator[tuple[str, str, str]]:
    """A row for each field, in order. A field without a text has an empty one."""
    texts = _texts_under_fields(struct)
    for field in msgspec.structs.fields(struct):
        yield f"`{field.name}`", _default(field), " ".join(texts.get(field.name, "").split())


def _default(field: msgspec.structs.FieldInfo) -> str:
    value = field.default
    if isinstance(value, msgspec.Struct):
        return f"`{type(value).__name__}()`"
    if field.name.endswith("_bytes"):
        return _shifted(value)
    if isinstance(value, str):
        return f'`"{value}"`'
    return f"`{value}`"


def _shifted(size: int) -> str:
    """A size as Python writes it: `8 << 30`."""
    shift = next(bits for bits in (30, 20, 10, 0) if size % (1 << bits) == 0)
    return f"`{size >> shift} << {shift}`"


def _texts_under_fields(struct: type[msgspec.Struct]) -> dict[str, str]:
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(struct))).body
    assert isinstance(definition, ast.ClassDef)
    found: dict[str, str] = {}
    for field, below in zip(definition.body, definition.body[1:], strict=False):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = text.replace("``", "`")
    return found
