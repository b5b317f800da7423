"""Warms up Triton in the zygote (the process that forks workers) and fills the compiler caches of workers.

A fresh process hashes Triton's own library (half a gigabyte), runs the assembler for its version and starts the
compiler. It also builds, with the C compiler, the Python module that calls the driver. That takes a second or two for
every candidate. Instead the zygote compiles a small kernel for the device's architecture, and every fork inherits the
warm compiler. The zygote keeps the module's files, and each worker writes them to its own cache folder. If a step fails
here, the worker does it itself.

Torch compiles some operators for a GPU (``polygamma``, ``lgamma``) when they are first called. Each worker gets copies
of the kernels that judges have compiled, in a folder of its own. Nothing is copied back from there. No candidate code
runs in this module, and the device is not opened.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torchstone.atomic_files import KERNEL_CACHE_VARIABLE

_MOST_CACHE_BYTES = 32 << 20
"""Most bytes of Triton's files, and again of torch's, that the zygote keeps for workers."""
_KERNEL = """
import triton
import triton.language as tl


@triton.jit
def kernel(source, target, count, SIZE: tl.constexpr):
    places = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    values = tl.load(source + places, mask=places < count)
    tl.store(target + places, tl.exp(tl.maximum(values, 0.0)), mask=places < count)
"""

_triton_cache_files: dict[str, bytes] = {}
"""Contents of files for Triton's cache folder, by their path in it."""
_torch_kernel_files: dict[str, bytes] = {}
"""Contents of files for torch's kernel cache, by file name."""


def warm_up(staging: str) -> None:
    """Compile a small kernel in the zygote, which has imported Triton. Leaves no file and no thread behind."""
    with tempfile.TemporaryDirectory(dir=staging) as folder, _cache_in(folder):
        for step in (_build_driver_module, _compile_kernel):
            with contextlib.suppress(Exception):  # another version of Triton, no C compiler, no driver
                step(folder)


def read_torch_kernels() -> None:
    """Read, in the zygote, the kernels that torch compiled in judges of earlier runs, the newest first."""
    folder = os.environ.get(KERNEL_CACHE_VARIABLE)
    if not folder:
        return
    with contextlib.suppress(OSError):
        files = [(path.stat(), path) for path in Path(folder).iterdir() if path.is_file()]
        left_bytes = _MOST_CACHE_BYTES
        for status, path in sorted(files, key=lambda each: -each[0].st_mtime_ns):
            left_bytes -= status.st_size
            if left_bytes < 0:
                return
            _torch_kernel_files[path.name] = path.read_bytes()


def write_triton_cache(cache: Path) -> None:
    """Write, in a worker, the files that the zygote built into Triton's cache folder."""
    _write(cache, _triton_cache_files)


def write_torch_cache(cache: Path) -> None:
    """Write, in a worker, the kernels that the zygote read into torch's cache folder."""
    cache.mkdir(exist_ok=True)  # else torch warns
    _write(cache, _torch_kernel_files)


def is_triton_cache_file(path: Path, scratch: Path) -> bool:
    """Whether a file of a worker's scratch folder was put there by :func:`write_triton_cache`."""
    return path.is_relative_to(scratch / "triton") and str(path.relative_to(scratch / "triton")) in _triton_cache_files


def _write(cache: Path, files: Mapping[str, bytes]) -> None:
    for name, data in files.items():
        path = cache / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(0o755)


def _build_driver_module(folder: str) -> None:
    """Build Triton's driver module into the cache folder, and keep its files."""
    from triton.backends.nvidia.driver import CudaUtils

    CudaUtils()
    for path in sorted(Path(folder).rglob("*")):
        if path.is_file() and path.stat().st_size + sum(map(len, _triton_cache_files.values())) <= _MOST_CACHE_BYTES:
            _triton_cache_files[str(path.relative_to(folder))] = path.read_bytes()


def _compile_kernel(folder: str) -> None:
    """Compile a small kernel with Triton for the first visible device."""
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
    """Compute capability of the first visible device, as 90. A child process queries it: the driver starts a thread,
    and forks of this process would not have that thread.
    """
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            os.write(write_end, str(_query_capability()).encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        found = pipe.read()
    os.waitpid(child, 0)
    return int(found)


def _query_capability() -> int:
    """Compute capability from NVML: initialized CUDA cannot be used after a fork."""
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
    """Make Triton use this cache folder in the block."""
    before = os.environ.get("TRITON_CACHE_DIR")
    os.environ["TRITON_CACHE_DIR"] = folder
    try:
        yield
    finally:
        if before is None:
            del os.environ["TRITON_CACHE_DIR"]
        else:
            os.environ["TRITON_CACHE_DIR"] = before
