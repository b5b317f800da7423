"""Keeps compiled CUDA kernels in the user's cache folder, so that other processes can load them.

An entry is named by a hash of everything that the code depends on. It begins with a digest of its content, so that a
damaged entry is compiled again. Where the folder cannot be used (a sandbox, a full disk), code is compiled in
memory without a message.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from pathlib import Path

from torchstone.atomic_files import cache_folder, write_atomically
from torchstone.kernels.cuda_compilers import OPTIONS, Compiler, compiler
from torchstone.schema import content_key

FOLDER = "cubins"
DIGEST_BYTES = 32


def cubin(source: str, architecture: str, options: Sequence[str] = (), by: Compiler | None = None) -> bytes:
    """Machine code of a source for an architecture such as `sm_90`: from the cache, else compiled and kept."""
    by = by or compiler()
    folder = cache_folder(FOLDER)
    key = content_key(source, architecture, [*OPTIONS, *options], by.version)
    path = None if folder is None else folder / f"{key}.cubin"
    kept = None if path is None else _read(path)
    if kept is not None:
        return kept
    code = by.compile(source, architecture, options).cubin
    if path is not None:
        _write(path, code)
    return code


def _read(path: Path) -> bytes | None:
    """The code of an entry. None: absent, unreadable or damaged."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    digest, code = data[:DIGEST_BYTES], data[DIGEST_BYTES:]
    return code if code and hashlib.sha256(code).digest() == digest else None


def _write(path: Path, code: bytes) -> None:
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, hashlib.sha256(code).digest() + code)
