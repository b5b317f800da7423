"""Spares workers a compiler's start: warms Triton up in the zygote (which forks workers), and fills their caches.

A fresh process hashes Triton's own library (half a gigabyte), asks the assembler for its version and starts the
compiler. It also builds, with the C compiler, the module through which it talks to the driver. That is a second or
two for every candidate. The zygote compiles a kernel of its own for the device's kind, which leaves all of that warm
in every fork. It keeps the module's files, which a worker finds in its own cache folder. What fails here is done by
the worker.

Torch itself compiles some operators for a GPU (``polygamma``, ``lgamma``) when they are first called. What judges have
compiled a worker finds in a folder of its own; nothing comes back from there. No code of a candidate runs here, and the
device is not opened.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torchstone.atomic_files import KERNELS_OF_TORCH

_MOST_SEED_BYTES = 32 << 20
_KERNEL = """
import triton
import triton.language as tl


@triton.jit
def kernel(source, target, count, SIZE: tl.constexpr):
    places = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    values = tl.load(source + places, mask=places < count)
    tl.store(target + places, tl.exp(tl.maximum(values, 0.0)), mask=places < count)
"""

_seed: dict[str, bytes] = {}
"""Files of Triton's cache, by their path in it."""
_kernels_of_torch: dict[str, bytes] = {}
"""Likewise of torch's."""


def warm_up(staging: str) -> None:
    """In the zygote, which has Triton imported. Leaves no file and no thread behind."""
    with tempfile.TemporaryDirectory(dir=staging) as folder, _cache_in(folder):
        for step in (_build_driver_module, _compile_kernel):
            with contextlib.suppress(Exception):  # another version of Triton, no C compiler, no driver
                step(folder)


def keep_kernels_of_torch() -> None:
    """In the zygote: what judges of earlier runs have compiled, the latest first."""
    folder = os.environ.get(KERNELS_OF_TORCH)
    if not folder:
        return
    with contextlib.suppress(OSError):
        files = [(path.stat(), path) for path in Path(folder).iterdir() if path.is_file()]
        left = _MOST_SEED_BYTES
        for status, path in sorted(files, key=lambda each: -each[0].st_mtime_ns):
            left -= status.st_size
            if left < 0:
                return
            _kernels_of_torch[path.name] = path.read_bytes()


def seed_triton(cache: Path) -> None:
    """In a worker: put into its cache folder what the zygote has built."""
    _write(cache, _seed)


def seed_torch(cache: Path) -> None:
    """Likewise what the zygote has found."""
    cache.mkdir(exist_ok=True)  # else torch warns
    _write(cache, _kernels_of_torch)


def is_seed(path: Path, scratch: Path) -> bool:
    """Whether a file of a worker's scratch folder was put there by :func:`seed_triton`."""
    return path.is_relative_to(scratch / "triton") and str(path.relative_to(scratch / "triton")) in _seed


def _write(cache: Path, files: Mapping[str, bytes]) -> None:
    for name, data in files.items():
        path = cache / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(0o755)


def _build_driver_module(folder: str) -> None:
    from triton.backends.nvidia.driver import CudaUtils

    CudaUtils()
    for path in sorted(Path(folder).rglob("*")):
        if path.is_file() and path.stat().st_size + sum(map(len, _seed.values())) <= _MOST_SEED_BYTES:
            _seed[str(path.relative_to(folder))] = path.read_bytes()


def _compile_kernel(folder: str) -> None:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    path = Path(folder) / "kernel.py"
    path.write_text(_KERNEL)
    spec = importlib.util.spec_from_file_location("torchstone_warm_up", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    signature: dict[str, Any] = {"source": "*fp32", "target": "*fp32", "count": "i32", "SIZE": "constexpr"}
    triton.compile(ASTSource(module.kernel, signature, {"SIZE": 128}), target=GPUTarget("cuda", _capability(), 32))


def _capability() -> int:
    """As 90, of the first visible device. Asked in a process of its own: the driver starts a thread, which no fork
    of this one would have.
    """
    answer, question = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            os.write(question, str(_ask_driver()).encode())
        os._exit(0)
    os.close(question)
    with os.fdopen(answer, "rb") as pipe:
        found = pipe.read()
    os.waitpid(child, 0)
    return int(found)


def _ask_driver() -> int:
    """NVML: asking CUDA would spoil every fork."""
    import pynvml

    pynvml.nvmlInit()
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES", "").partition(",")[0]
    if chosen.startswith("GPU-"):
        handle = pynvml.nvmlDeviceGetHandleByUUID(chosen)
    else:
        handle = pynvml.nvmlDeviceGetHandleByIndex(int(chosen or 0))
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    pynvml.nvmlShutdown()
    return int(10 * major + minor)


@contextlib.contextmanager
def _cache_in(folder: str) -> Iterator[None]:
    before = os.environ.get("TRITON_CACHE_DIR")
    os.environ["TRITON_CACHE_DIR"] = folder
    try:
        yield
    finally:
        if before is None:
            del os.environ["TRITON_CACHE_DIR"]
        else:
            os.environ["TRITON_CACHE_DIR"] = before
