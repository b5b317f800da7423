"""Reads and checks the extra files that a caller of the Python API sends with a kernel, before anything is started."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from torchstone.backends.shared_files import MAX_FILES, RESERVED
from torchstone.backends.source_files import MAX_BYTES
from torchstone.errors import UsageError
from torchstone.schema import SourceFile

Files = Mapping[str, str] | Iterable[str | Path]
"""Name -> text, where a name may have folders (``common/tiles.py``), or paths of files, each under its own name."""


def accompanying(files: Files, kernel: str) -> tuple[SourceFile, ...]:
    """The files for the worker, in order of names. ``kernel`` is the name of the kernel's own file.

    Raises UsageError for unusable names, too many files or too much text.
    """
    named = sorted(_named(files))
    if len(named) > MAX_FILES:
        raise UsageError(f"files= gives {len(named)} files; at most {MAX_FILES} travel with a kernel.")
    used_names = {kernel}
    for name, _ in named:
        _require_usable(name, used_names)
        used_names.add(name)
    if sum(len(text.encode()) for _, text in named) > MAX_BYTES:
        raise UsageError(f"files= gives more than {MAX_BYTES >> 20} MiB of text. Send less along.")
    return tuple(SourceFile(name, text) for name, text in named)


def encodable(text: str) -> str:
    """The text without surrogates, which UTF-8 cannot encode and model output may contain. Pairs are joined, a single
    one becomes U+FFFD.
    """
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _named(files: Files) -> Iterable[tuple[str, str]]:
    if isinstance(files, (str, bytes, Path)) or not isinstance(files, Iterable):
        raise UsageError("files= takes a mapping from name to text, or a list of paths. Put the path into a list.")
    if not isinstance(files, Mapping):
        return [(Path(path).name, read_text(Path(path), "file")) for path in files]
    for name, text in files.items():
        if not (isinstance(name, str) and isinstance(text, str)):
            raise UsageError(f"files= maps names to text, and {name!r} to {type(text).__name__}. Read the file first.")
    return [(name, encodable(text)) for name, text in files.items()]


def read_text(path: Path, kind: str) -> str:
    """The text of a file that the caller named. Raises UsageError if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # not there, not UTF-8, or no name that a file can have
        raise UsageError(f"{kind} '{path}' cannot be read: {error}.") from error


def _require_usable(name: str, used_names: set[str]) -> None:
    """Raise UsageError unless the name is a plain relative path, is unused, and hides no module of Python or torch."""
    path = PurePosixPath(name)
    if not name.isprintable() or path.is_absolute() or ".." in path.parts or str(path) != name or name == ".":
        raise UsageError(f"files= has the name {name!r}. Use plain relative names, such as 'common/tiles.py'.")
    if name in used_names or any(str(folder) in used_names for folder in path.parents):
        raise UsageError(f"files= has the name '{name}' twice, or it is the kernel's own. Use another name.")
    module = path.parts[0].removesuffix(".py")
    if module in RESERVED and path.suffix == ".py":
        raise UsageError(f"files= has '{name}', and '{module}' is a module of Python or of torch. Use another name.")
