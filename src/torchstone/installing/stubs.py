"""``torchstone new-kernels``: writes a stub for each operator of a suite.

A stub's text is looked up: the schema and the docstring in torch, the calls in the suite's cases.
"""

from __future__ import annotations

import inspect
import keyword
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch

from torchstone.backends import BackendOptions, folder_name
from torchstone.backends.directory import DirectoryBackend
from torchstone.errors import UsageError
from torchstone.operator_names import base_name
from torchstone.operators import resolve
from torchstone.schema import Case, tensors_of

_WIDTH = 110
_MOST_DOCUMENT_LINES = 14
_MOST_CALLS = 12
_SECTIONS = (
    "Args:",
    "Arguments:",
    "Keyword args:",
    "Keyword Arguments:",
    "Returns:",
    "Example",
    "Shape:",
    "See :",
)
_README = """# Kernels for suite {suite}

One folder per operator, made by `torchstone new-kernels`. Each holds a stub that says what the operator promises and
with what it will be called, and raises `NotImplementedError`.

1. Write the function `<folder>_kernel_impl` of a stub, or put a next version beside it:
   `<folder>_implementation_v2.py`. The highest number is the one that counts. Other files of the folder can be
   imported, and modules that kernels share at the root of this one.
2. Judge them; operators that are still stubs are told as `unsupported`:
   `torchstone run --suite {suite} --backend directory --kernels-dir {folder} --ops NAMES`
3. Where the time goes: `torchstone profile <folder>/<file>.py`.
4. Use them in a model: `torchstone.enable("{folder}")`, or compare a training with and without:
   `torchstone model SCRIPT --kernels-dir {folder}`.

`torchstone new-kernels` writes stubs for further operators beside these and never changes a file that is there.
"""


class Written(msgspec.Struct, frozen=True):
    """What came of writing stubs."""

    written: tuple[str, ...]
    """Files, relative to the folder."""
    kept: tuple[str, ...]
    """Operators that have a kernel or a folder there already; nothing of theirs was touched."""


def write_stubs(cases: Iterable[Case], suite: str, folder: Path) -> Written:
    """A stub for every operator of the cases that has none yet, and a README."""
    by_operator: dict[str, list[Case]] = {}
    for case in cases:
        by_operator.setdefault(case.operator, []).append(case)
    written: list[str] = []
    kept: list[str] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        present = _kernels_in(folder)
        for operator, own in sorted(by_operator.items()):
            offered = present is not None and present.implementation(operator) is not None
            if offered or (folder / folder_name(operator)).exists():
                kept.append(operator)
            else:
                written.append(_write(folder, operator, stub(operator, own, suite)))
        if not (folder / "README.md").exists():
            _create(folder / "README.md", _README.format(suite=suite, folder=folder))
    except OSError as error:
        raise UsageError(f"cannot write to '{folder}': {(error.strerror or 'failed').lower()}.") from error
    return Written(tuple(written), tuple(kept))


def stub(operator: str, cases: Sequence[Case], suite: str) -> str:
    """The text of a stub."""
    declared = resolve(operator)._schema
    parts = [
        f"{operator}: a stub. Write the function below.",
        f"Signature (torch {torch.__version__}):\n{_indented(str(declared))}",
        f"What it computes:\n{_indented(_document(operator))}",
        f"Memory:\n{_indented(' '.join(_memory(declared)))}",
        f"Cases of suite '{suite}': {len(cases)}, {sum(case.timed for case in cases)} of them timed\n{_cases(cases)}",
    ]
    document = "\n\n".join(parts).replace('"""', "'''")
    name = f"{folder_name(operator)}_kernel_impl"
    lines = [
        f'r"""{document}\n"""\n',  # raw: formulas are full of backslashes
        "import torch  # noqa: F401\n\n",
        f"def {name}({_parameters(declared)}):  # noqa: N802",
        f'    raise NotImplementedError("{operator} is still a stub")\n',
    ]
    return "\n".join(lines)


def _kernels_in(folder: Path) -> DirectoryBackend | None:
    """What the folder offers already: a stub must not stand before a kernel, wherever that lies in it."""
    try:
        return DirectoryBackend(BackendOptions(folder))
    except UsageError:
        return None


def _write(folder: Path, operator: str, text: str) -> str:
    name = folder_name(operator)
    path = folder / name / f"{name}_implementation_v1.py"
    path.parent.mkdir()
    _create(path, text)
    return str(path.relative_to(folder))


def _create(path: Path, text: str) -> None:
    with path.open("x", encoding="utf-8") as file:  # never a file that is there
        file.write(text)


# ---- what torch says


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


def _document(operator: str) -> str:
    """The beginning of torch's docstring of the function, in plain text."""
    base = base_name(operator)
    plain = base.strip("_").removeprefix("native_")
    names = {argument.name for argument in resolve(operator)._schema.arguments} - {"self"}
    for name in dict.fromkeys((base, base.rstrip("_"), plain)):
        for home in (torch, torch.nn.functional, torch.Tensor):
            document = getattr(getattr(home, name, None), "__doc__", None) or ""
            text = _plain_text(_part_about(names, document))
            if text:
                shown = home.__name__ if home is not torch.Tensor else "torch.Tensor"
                return f"{text}\n(From the docstring of {shown}.{name}.)"
    return f"torch has no docstring for it. It is what torch.ops.{operator} computes."


def _part_about(names: set[str], document: str) -> str:
    """A docstring may tell of several overloads: the part whose signature has most of these arguments."""
    first, *others = re.split(r"^\.\. function:: ", document, flags=re.MULTILINE)
    parts = [first.lstrip(), *others]

    def shared(part: str) -> int:
        return len(names.intersection(re.findall(r"\w+", part.partition("\n")[0])))

    return max(parts, key=shared)


def _plain_text(document: str) -> str:
    text = inspect.cleandoc(re.sub(r"\A\w+\(.*\n|^ *:noindex:$", "", document, flags=re.MULTILINE))
    text = text.replace(".. math::\n", "")
    text = "\n".join(_beginning(text))
    text = re.sub(r":\w+:`~?([^`<]*?)\s*(?:<[^`]*>)?`", r"\1", text)
    text = text.replace("``", "").replace("::\n", ":\n").replace("{{", "{").replace("}}", "}")
    useless = text.startswith(("Alias for", "In-place version"))
    return "" if useless else re.sub(r"\n{3,}", "\n\n", text).strip()


def _beginning(text: str) -> list[str]:
    """The lines before the arguments are told one by one, without notes and warnings."""
    lines: list[str] = []
    in_note = False
    for line in text.splitlines():
        if line.startswith(_SECTIONS) or len(lines) >= _MOST_DOCUMENT_LINES:
            break
        in_note = line.startswith(".. ") or (in_note and (not line or line.startswith(" ")))
        if not in_note:
            lines.append(line.rstrip())
    return lines


# ---- what the suite says


def _cases(cases: Sequence[Case]) -> str:
    tensors = [tensor for case in cases for tensor in tensors_of(case)]
    dtypes = dict.fromkeys(tensor.dtype for tensor in tensors)
    edges = {
        "tensors without elements": any(0 in tensor.shape for tensor in tensors),
        "tensors without dimensions": any(tensor.shape == () for tensor in tensors),
        "strides that are not contiguous": any(tensor.strides is not None for tensor in tensors),
        "strides of zero (expanded)": any(_is_expanded(tensor) for tensor in tensors),
        "a storage offset": any(tensor.offset for tensor in tensors),
    }
    present = [name for name, there in edges.items() if there]
    lines = [
        f"dtypes: {', '.join(dtypes) or 'no tensors'}",
        f"tags: {', '.join(dict.fromkeys(tag for case in cases for tag in case.tags)) or 'none'}",
        f"edge cases: {', '.join(present) or 'none'}",
        "The judge also calls with other sizes and layouts, which nobody is told beforehand.",
        "Calls, T(shape, dtype):",
    ]
    text = "\n".join(_indented(line) for line in lines)
    calls = [f"        ({case.label}){'  timed' if case.timed else ''}" for case in cases[:_MOST_CALLS]]
    more = [f"        and {len(cases) - _MOST_CALLS} more"] if len(cases) > _MOST_CALLS else []
    return "\n".join([text, *calls, *more])


def _is_expanded(tensor: Any) -> bool:
    return tensor.strides is not None and any(
        stride == 0 and size > 1 for stride, size in zip(tensor.strides, tensor.shape, strict=True)
    )


def _indented(text: str) -> str:
    """By four, and wrapped; lines keep their breaks."""
    lines = (textwrap.wrap(line, _WIDTH) or [""] for line in text.splitlines())
    return "\n".join(f"    {part}".rstrip() for line in lines for part in line)
