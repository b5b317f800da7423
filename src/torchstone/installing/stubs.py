"""Writes a stub file for each operator of a suite that has no kernel yet: ``torchstone new-kernels``.

A stub is a kernel file whose function raises NotImplementedError. Its docstring holds the operator's schema and
documentation from torch, and the calls of the suite's cases.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import torch

from torchstone.backends import BackendOptions, folder_name
from torchstone.backends.directory import DirectoryBackend
from torchstone.errors import UsageError
from torchstone.operators.documentation import documentation, memory_notes, parameters, schema_text
from torchstone.schema import Case
from torchstone.suites.case_overview import overview_of

_COLUMNS = 110
"""Columns at which the docstring of a stub is wrapped, without its indentation."""
_MOST_CALLS = 12
"""Most calls that a stub lists. If there are more, it gives the number of the rest."""
_README = """# Kernels for suite {suite}

One folder per operator, made by `torchstone new-kernels`. Each holds a stub that says what the operator promises and
with what it will be called, and raises `NotImplementedError`.

1. Write the function `<folder>_kernel_impl` of a stub, or put a next version beside it:
   `<folder>_implementation_v2.py`. The highest number is the one that counts. Other files of the folder can be
   imported, and modules that kernels share at the root of this one.
2. Judge them; operators that are still stubs get the verdict `unsupported`:
   `torchstone run --suite {suite} --backend directory --kernels-dir {folder} --ops NAMES`
3. Where the time goes: `torchstone profile <folder>/<file>.py`.
4. Use them in a model: `torchstone.enable("{folder}")`, or compare a training with and without:
   `torchstone model SCRIPT --kernels-dir {folder}`.

`torchstone new-kernels` writes stubs for further operators beside these and never changes a file that is there.
"""


class Written(msgspec.Struct, frozen=True):
    """The result of writing stubs."""

    written: tuple[str, ...]
    """Files, relative to the folder."""
    kept: tuple[str, ...]
    """Operators that have a kernel or a folder there already; their files were not changed."""


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
    parts = [
        f"{operator}: a stub. Write the function below.",
        f"Signature (torch {torch.__version__}):\n{_indented(schema_text(operator))}",
        f"What it computes:\n{_indented(documentation(operator))}",
        f"Memory:\n{_indented(memory_notes(operator))}",
        f"Cases of suite '{suite}': {len(cases)}, {sum(case.timed for case in cases)} of them timed\n{_cases(cases)}",
    ]
    document = "\n\n".join(parts).replace('"""', "'''")
    name = f"{folder_name(operator)}_kernel_impl"
    lines = [
        f'r"""{document}\n"""\n',  # raw: formulas are full of backslashes
        "import torch  # noqa: F401\n\n",
        f"def {name}({parameters(operator)}):  # noqa: N802",
        f'    raise NotImplementedError("{operator} is still a stub")\n',
    ]
    return "\n".join(lines)


def _kernels_in(folder: Path) -> DirectoryBackend | None:
    """The kernels anywhere in the folder; None: there are none. A stub must not take precedence over a kernel."""
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
    with path.open("x", encoding="utf-8") as file:  # fails if the file exists
        file.write(text)


def _cases(cases: Sequence[Case]) -> str:
    overview = overview_of(cases)
    lines = [
        f"dtypes: {', '.join(overview.dtypes) or 'no tensors'}",
        f"tags: {', '.join(overview.tags) or 'none'}",
        f"edge cases: {', '.join(overview.edges) or 'none'}",
        "The judge also calls with other sizes and layouts, which are not listed here.",
        "Calls, T(shape, dtype):",
    ]
    text = "\n".join(_indented(line) for line in lines)
    calls = [f"        {call}" for call in overview.calls[:_MOST_CALLS]]
    more = [f"        and {overview.count - _MOST_CALLS} more"] if overview.count > _MOST_CALLS else []
    return "\n".join([text, *calls, *more])


def _indented(text: str) -> str:
    """The text indented by four and wrapped; it keeps its line breaks."""
    lines = (textwrap.wrap(line, _COLUMNS) or [""] for line in text.splitlines())
    return "\n".join(f"    {part}".rstrip() for line in lines for part in line)
