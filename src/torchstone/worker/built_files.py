"""Packs a candidate's compiled files for later workers of the same candidate, and unpacks them. Runs in workers only.

The judge keeps the packed bytes without reading them. So nothing outside a worker depends on their form, and the worker
that unpacks them runs no other candidate. Unpacking is done before candidate code is imported.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import msgspec

from torchstone.worker.compiler_warm_up import is_seed

FOLDERS = ("extensions", "triton", "inductor", "cuda", "native", "cache")
"""Of the scratch folder: where the environment tells compilers to keep their files, and where native kernels lie."""
_MOST_FILES = 4096
"""In one package. An extension has about ten files, a kernel of Triton eight."""


class _BuiltFile(msgspec.Struct, frozen=True, array_like=True):
    path: str
    """Relative to the scratch folder."""
    mode: int
    modified_ns: int
    """Ninja builds again what seems older than its source."""
    content: bytes


def pack(scratch: Path, descriptor: int, room_bytes: int) -> int:
    """Write the files into a memory file of this size; returns how many bytes. 0: there are none, or too many."""
    files: list[_BuiltFile] = []
    left = room_bytes
    for path in _regular_files(scratch):
        status = path.stat()
        left -= status.st_size
        if left < 0 or len(files) == _MOST_FILES:
            return 0
        name = str(path.relative_to(scratch))
        files.append(_BuiltFile(name, status.st_mode & 0o777, status.st_mtime_ns, path.read_bytes()))
    packed = msgspec.msgpack.encode(files) if files else b""
    if len(packed) > room_bytes:
        return 0
    _write_all(descriptor, packed)
    return len(packed)


def _regular_files(scratch: Path) -> Iterator[Path]:
    """No links, no pipes, nothing that the zygote has put there."""
    for name in FOLDERS:
        for folder, _, names in os.walk(scratch / name):
            for path in (Path(folder, each) for each in sorted(names)):
                if stat.S_ISREG(path.lstat().st_mode) and not is_seed(path, scratch):
                    yield path


def _write_all(descriptor: int, data: bytes) -> None:
    view, place = memoryview(data), 0
    while place < len(view):
        place += os.pwrite(descriptor, view[place:], place)


def unpack(scratch: Path, descriptor: int, size_bytes: int) -> None:
    """Put packed files where they were. What is there already stays."""
    for file in msgspec.msgpack.decode(_read_all(descriptor, size_bytes), type=list[_BuiltFile]):
        path = scratch / _inside(file.path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            _create(path, file)


def _inside(name: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or len(path.parts) < 2 or path.parts[0] not in FOLDERS:
        raise ValueError(f"a built file '{name}' does not lie in a folder of compilers")
    return name


def _create(path: Path, file: _BuiltFile) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with os.fdopen(os.open(path, flags, file.mode & 0o777 | stat.S_IWUSR), "wb") as opened:
        opened.write(file.content)
    os.utime(path, ns=(file.modified_ns, file.modified_ns))


def _read_all(descriptor: int, size_bytes: int) -> bytes:
    data = b""
    while len(data) < size_bytes:
        part = os.pread(descriptor, size_bytes - len(data), len(data))
        if not part:
            break
        data += part
    return data
