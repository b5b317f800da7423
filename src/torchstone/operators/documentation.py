"""Reads torch's documentation of an operator for stubs and prompts: parameters, memory, docstring."""

from __future__ import annotations

import inspect
import keyword
import re
from collections.abc import Iterator
from typing import Any

import torch

from torchstone.operator_categories import base_name
from torchstone.operators.overloads import resolve

_MOST_LINES = 14
"""Most lines of a short documentation."""
_MOST_LINES_WHOLE = 60
"""Most lines of a whole one: enough for the formula and every argument of convolutions and attention."""
_ARGUMENTS = ("Args:", "Arguments:", "Keyword args:", "Keyword Arguments:", "Returns:", "Shape:", "See :")
"""Beginnings of the lines at which a short documentation ends."""
_EXAMPLES = ("Example",)


def schema_text(operator: str) -> str:
    """torch's schema of the operator, such as ``aten::relu(Tensor self) -> Tensor``."""
    return str(resolve(operator)._schema)


def parameters(operator: str) -> str:
    """The parameters of a Python function that takes the operator's arguments: ``self, other, *, alpha=1``."""
    return _parameters(resolve(operator)._schema)


def memory_notes(operator: str) -> str:
    """Sentences that say which arguments the operator writes to, and which memory its results use."""
    return " ".join(_memory(resolve(operator)._schema))


def _parameters(declared: Any) -> str:
    names: list[str] = []
    for argument in declared.arguments:
        if argument.kwarg_only and "*" not in names:
            names.append("*")
        name = f"{argument.name}_" if keyword.iskeyword(argument.name) else argument.name
        names.append(f"{name}={_default(argument.default_value)}" if argument.has_default_value() else name)
    return ", ".join(names)


def _default(value: Any) -> str:
    return repr(tuple(value)) if isinstance(value, list) else repr(value)


def _memory(declared: Any) -> Iterator[str]:
    changed = [item.name for item in declared.arguments if item.alias_info is not None and item.alias_info.is_write]
    yield f"Writes to {' and '.join(changed)}, and to no other argument." if changed else "Writes to no argument."
    for place, item in enumerate(declared.returns):
        which = "What it returns" if len(declared.returns) == 1 else f"Return value {place + 1}"
        yield f"{which} {_relation(item.alias_info, declared)}."


def _relation(alias: Any, declared: Any) -> str:
    if alias is None:
        return "is new: it shares memory with no argument"
    owners = [
        item.name
        for item in declared.arguments
        if item.alias_info is not None and item.alias_info.before_set & alias.before_set
    ]
    owner = " or ".join(owners) or "an argument"
    return f"is {owner} itself" if alias.is_write else f"is a view of {owner}: the same memory, nothing is copied"


def documentation(operator: str, *, whole: bool = False) -> str:
    """The beginning of torch's docstring of the operator, in plain text; ``whole``: everything before the examples."""
    base = base_name(operator)
    plain = base.strip("_").removeprefix("native_")
    names = {argument.name for argument in resolve(operator)._schema.arguments} - {"self"}
    for name in dict.fromkeys((base, base.rstrip("_"), plain)):
        for home in (torch, torch.nn.functional, torch.Tensor):
            document = getattr(getattr(home, name, None), "__doc__", None) or ""
            text = _plain_text(_overload_part(names, document), whole)
            if text:
                shown = home.__name__ if home is not torch.Tensor else "torch.Tensor"
                return f"{text}\n(From the docstring of {shown}.{name}.)"
    return f"torch has no docstring for it. It is what torch.ops.{operator} computes."


def _overload_part(names: set[str], document: str) -> str:
    """Of a docstring that documents several overloads, the part whose signature has most of these arguments."""
    first, *others = re.split(r"^\.\. function:: ", document, flags=re.MULTILINE)
    parts = [first.lstrip(), *others]

    def shared(part: str) -> int:
        return len(names.intersection(re.findall(r"\w+", part.partition("\n")[0])))

    return max(parts, key=shared)


def _plain_text(document: str, whole: bool) -> str:
    text = inspect.cleandoc(re.sub(r"\A\w+\(.*\n|^ *:noindex:$", "", document, flags=re.MULTILINE))
    text = text.replace(".. math::\n", "")
    text = "\n".join(_without_notes(text, whole))
    text = re.sub(r":\w+:`~?([^`<]*?)\s*(?:<[^`]*>)?`", r"\1", text)
    text = text.replace("``", "").replace("::\n", ":\n").replace("{{", "{").replace("}}", "}")
    useless = text.startswith(("Alias for", "In-place version"))
    return "" if useless else re.sub(r"\n{3,}", "\n\n", text).strip()


def _without_notes(text: str, whole: bool) -> list[str]:
    """The lines before the arguments, or before the examples, without notes and warnings."""
    sections, most = (_EXAMPLES, _MOST_LINES_WHOLE) if whole else ((*_EXAMPLES, *_ARGUMENTS), _MOST_LINES)
    lines: list[str] = []
    in_note = False
    for line in text.splitlines():
        if line.startswith(sections) or len(lines) >= most:
            break
        in_note = line.startswith(".. ") or (in_note and (not line or line.startswith(" ")))
        if not in_note:
            lines.append(line.rstrip())
    return lines
