"""Finds functions and declarations in C++ and CUDA source text, and the language of a file. Compiles nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import PurePath

from torchstone.schema import Language, SourceFile

SOURCES: dict[str, Language] = {".cu": "cuda", ".cpp": "cpp"}
"""Suffixes of files that are compiled. The first that a kernel has decides its language: a .cu file makes it CUDA."""
HEADERS = (".h", ".hpp", ".cuh")


_CPP_SIGN = re.compile(r"^[ \t]*(?:#[ \t]*include\b|__global__\b|template\s*<|extern\s+\"C\")", re.MULTILINE)
_CUDA_SIGN = re.compile(r"__global__\b|<<<|\bcuda")
_PYTHON_SIGN = re.compile(r"^(?:(?:import|from|def|async)\b|@)", re.MULTILINE)


def file_name_of(text: str) -> str:
    """A file name for source text without one: `kernel.cu` or `kernel.cpp` if it evidently is, else `kernel.py`."""
    if _CPP_SIGN.search(text) is None or _PYTHON_SIGN.search(text) is not None:
        return "kernel.py"
    return "kernel.cu" if _CUDA_SIGN.search(text) else "kernel.cpp"


def is_native(name: str) -> bool:
    """Whether a file of this name is compiled rather than imported."""
    return PurePath(name).suffix in SOURCES


def language_of(names: Iterable[str]) -> Language:
    """`cuda` if any of the files is a .cu file, else `cpp`."""
    suffixes = {PurePath(name).suffix for name in names}
    return next(language for suffix, language in SOURCES.items() if suffix in suffixes)


def compiled_files(files: Sequence[SourceFile]) -> tuple[SourceFile, ...]:
    """The files of a native kernel that are compiled: sources with the first file's name. Others are for #include."""
    stem = PurePath(files[0].name).stem
    return tuple(file for file in files if is_native(file.name) and PurePath(file.name).stem == stem)


def entry_in(files: Iterable[SourceFile], names: Sequence[str]) -> str:
    """The first of the names that the files declare, define or call; if there is none, the first of the names."""
    text = "\n".join(file.text for file in files)
    return next((name for name in names if mentions(text, name)), names[0])


def mentions(text: str, function: str) -> bool:
    """Whether the text contains the function's name followed by a parenthesis."""
    return re.search(rf"(?<![\w:.>]){re.escape(function)}\s*\(", text) is not None


_DEFINITION = re.compile(r"^[\w:<>,&* \t]+[\s&*>](\w+)\s*\([^;{}()]*\)\s*\{", re.MULTILINE | re.ASCII)


def functions_in(text: str) -> tuple[str, ...]:
    """Names of functions that the text defines at the beginning of a line, for a message; it may miss some."""
    return tuple(dict.fromkeys(_DEFINITION.findall(text)))


_PLAIN_TYPES = {"const", "void", "bool", "int", "int32_t", "int64_t", "size_t", "float", "double"}
_KNOWN_NAMESPACES = ("at", "c10", "std", "torch")
_NAME = re.compile(r"(?:\w+::)*\w+", re.ASCII)


def declaration_in(text: str, function: str) -> str | None:
    """The declaration of a function that the text defines, if it can be repeated in another file.

    None if the definition does not begin a line or contains other types than the language's and torch's.
    """
    head = re.compile(rf"^([\w:<>,&* \t]+[\s&*>]){re.escape(function)}\s*\(([\w:<>,&*\s]*)\)\s*\{{", re.MULTILINE)
    found = head.search(text)
    if found is None:
        return None
    result, parameters = found[1].strip(), _split_at_commas(found[2])
    types = [result, *(_without_name(parameter) for parameter in parameters)]
    if not all(_is_known(name) for kind in types for name in _NAME.findall(kind)):
        return None
    return f"{result} {function}({', '.join(types[1:])});"


def _split_at_commas(parameters: str) -> list[str]:
    """The parameters, split at commas outside of angle brackets."""
    parts, depth = [""], 0
    for character in parameters:
        depth += {"<": 1, ">": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def _without_name(parameter: str) -> str:
    """`const at::Tensor& self` -> `const at::Tensor&`; a parameter without a name stays as it is."""
    kind = re.sub(r"(?<=[\s&*>])\w+$", "", parameter, flags=re.ASCII).strip()
    return kind if kind not in ("", "const") else parameter


def _is_known(name: str) -> bool:
    space, _, rest = name.partition("::")
    return space in _KNOWN_NAMESPACES if rest else name in _PLAIN_TYPES
