"""Packs a candidate's compiled files for later workers of the same candidate, and unpacks them. Runs in workers only.

The judge keeps the packed bytes without reading them, so nothing outside a worker depends on their format. The worker
that unpacks them runs no other candidate, and unpacks them before it imports candidate code.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import msgspec

from torchstone.worker.compiler_warm_up import is_triton_cache_file

FOLDERS = ("extensions", "triton", "inductor", "cuda", "native", "cache")
"""Folders of the scratch folder that are packed: the compilers' caches, and the libraries of native kernels."""
_MOST_FILES = 4096
"""Most files in one package. An extension has about ten files, a Triton kernel eight."""


class _BuiltFile(msgspec.Struct, frozen=True, array_like=True):
    path: str
    """Relative to the scratch folder."""
    mode: int
    modified_ns: int
    """Time of the last change. Ninja builds a file again that is older than its source."""
    content: bytes


def pack(scratch: Path, descriptor: int, room_bytes: int) -> int:
    """Write the compiled files into a memory file of ``room_bytes``, and return how many bytes were written.

    0: there are no files, more than :data:`_MOST_FILES`, or more bytes than fit.
    """
    files: list[_BuiltFile] = []
    left_bytes = room_bytes
    for path in _regular_files(scratch):
        status = path.stat()
        left_bytes -= status.st_size
        if left_bytes < 0 or len(files) == _MOST_FILES:
            return 0
        name = str(path.relative_to(scratch))
        files.append(_BuiltFile(name, status.st_mode & 0o777, status.st_mtime_ns, path.read_bytes()))
    packed = msgspec.msgpack.encode(files) if files else b""
    if len(packed) > room_bytes:
        return 0
    _write_all(descriptor, packed)
    return len(packed)


def _regular_files(scratch: Path) -> Iterator[Path]:
    """Compiled files in the scratch folder, without links, pipes and files that came from the zygote."""
    for name in FOLDERS:
        for folder, _, names in os.walk(scratch / name):
            for path in (Path(folder, each) for each in sorted(names)):
                if stat.S_ISREG(path.lstat().st_mode) and not is_triton_cache_file(path, scratch):
                    yield path


def _write_all(descriptor: int, data: bytes) -> None:
    view, offset = memoryview(data), 0
    while offset < len(view):
        offset += os.pwrite(descriptor, view[offset:], offset)


def unpack(scratch: Path, descriptor: int, size_bytes: int) -> None:
    """Write packed files to the paths that they had. A file that exists already is not replaced."""
    for file in msgspec.msgpack.decode(_read_all(descriptor, size_bytes), type=list[_BuiltFile]):
        path = scratch / _inside(file.path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            _create(path, file)


def _inside(name: str) -> str:
    """The path itself, if it lies in one of :data:`FOLDERS`; raises ValueError otherwise."""
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
