"""Turns a kernel as users pass it to the API (text, path or function) into source text for the worker.

A kernel is a function, source text, or a path. A function travels as the text of its file. The worker imports that
text; the function is never pickled and never called here.
"""

from __future__ import annotations

import inspect
import os
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torchstone.backends.accompanying_files import Files, accompanying, encodable, read_text
from torchstone.backends.find_kernel_function import conventional_names, python_entry
from torchstone.backends.native_source import compiled_files, entry_in, file_name_of, is_native, language_of
from torchstone.backends.python_source import language_of_modules
from torchstone.errors import UsageError
from torchstone.schema import Implementation, SourceFile, SourceFiles

Kernel = Callable[..., Any] | str | Path | Implementation


def as_implementation(kernel: Kernel, operator: str, entry: str | None = None, files: Files = ()) -> Implementation:
    """The kernel as data. ``operator`` is a full name: ``aten.relu.default``."""
    if isinstance(kernel, Implementation):
        return kernel
    if operator.count(".") < 2:
        raise UsageError(f"operator '{operator}' is not a full name. Write for instance 'aten.add.Tensor'.")
    if isinstance(kernel, Path) or (isinstance(kernel, str) and _looks_like_path(kernel)):
        path = Path(kernel)
        return _from_text(read_text(path, "kernel file"), operator, entry, path.name, str(path), files)
    if isinstance(kernel, str):
        text = encodable(kernel)
        return _from_text(text, operator, entry, file_name_of(text), "source text", files)
    return _from_function(kernel, operator, files)


def _looks_like_path(text: str) -> bool:
    """Whether the text is one line with a kernel's suffix. With blanks in it, only if the file exists: the text may be
    a model's reply that ends in `see relu.py`.
    """
    if "\n" in text or not (text.endswith(".py") or is_native(text)):
        return False
    return len(text.split()) == 1 or os.path.isfile(text)


def _from_text(text: str, operator: str, entry: str | None, name: str, label: str, files: Files) -> Implementation:
    sources = (SourceFile(name, text), *accompanying(files, name))
    if is_native(name):
        native_entry = entry or entry_in(sources, conventional_names(operator))
        language = language_of(file.name for file in compiled_files(sources))
        return Implementation("api", operator, SourceFiles(sources, native_entry, label), language)
    origin = SourceFiles(sources, entry or python_entry(text, operator), label)
    return Implementation("api", operator, origin, language_of_modules(sources))


def _from_function(function: Callable[..., Any], operator: str, files: Files) -> Implementation:
    name = getattr(function, "__name__", None)
    qualified = getattr(function, "__qualname__", "")
    if not inspect.isfunction(function) or name is None or "<" in qualified or "." in qualified:
        raise UsageError("only functions at the top level of a file can be judged. Pass source text or a path instead.")
    file = inspect.getsourcefile(function)
    if file is not None and Path(file).is_file():
        text = read_text(Path(file), "kernel file")
        return _from_text(text, operator, name, Path(file).name, f"{file}:{name}", files)
    try:
        text = textwrap.dedent(inspect.getsource(function))
    except OSError as error:
        raise UsageError(f"the source of '{name}' is not known. Pass source text or a path instead.") from error
    # In a notebook only the function itself is sent, so it must import what it uses.
    return _from_text(f"import torch\n\n{text}", operator, name, "kernel.py", f"notebook:{name}", files)
