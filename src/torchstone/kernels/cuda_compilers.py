"""The compilers NVRTC and nvcc: CUDA C++ becomes machine code by NVRTC or, if it is missing, by nvcc. Needs no GPU.

NVRTC is a library (`cuda-bindings` with `nvidia-cuda-nvrtc`, the extra `cuda`): it needs no host compiler and no files,
and takes a fraction of nvcc's time.
"""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from torchstone.errors import InfrastructureError, MissingExtraError

OPTIONS = ("--std=c++17", "--generate-line-info", "--ptxas-options=-v")
"""Options for every source. Line numbers are for profilers; ptxas reports registers and spills in the log."""
NOT_INSTALLED = (
    "CUDA kernels need a compiler: install the extra 'cuda' (pip install 'torchstone[cuda]'), or put nvcc on PATH."
)
NVCC_SECONDS = 300
"""Time limit for one run of nvcc."""


class CompilationError(InfrastructureError):
    """A CUDA source does not compile for this device. The message quotes the compiler."""


class Compiled(NamedTuple):
    """The result of compiling a source."""

    cubin: bytes
    """Machine code of one architecture, as `cuModuleLoadData` takes it."""
    log: str
    """Warnings, and what ptxas says about registers and spills."""


class Compiler(NamedTuple):
    """A compiler that was found on this machine."""

    version: str
    """Part of the cache key, since another compiler makes other code."""
    compile: Callable[[str, str, Sequence[str]], Compiled]
    """Source, architecture (`sm_90`) and options to machine code."""


def why_unavailable() -> str | None:
    """One line that says what to install, or None where CUDA sources can be compiled."""
    return None if _found() is not None else NOT_INSTALLED


def compiler() -> Compiler:
    """NVRTC, else nvcc. Raises `MissingExtraError` where there is neither."""
    found = _found()
    if found is None:
        raise MissingExtraError(NOT_INSTALLED)
    return found


@functools.cache
def _found() -> Compiler | None:
    return nvrtc_compiler() or nvcc_compiler()


def nvrtc_compiler() -> Compiler | None:
    """NVRTC as a compiler. None: the package or its library is missing."""
    try:
        from cuda.bindings import nvrtc

        version = _checked(nvrtc, nvrtc.nvrtcVersion())
    except (ImportError, RuntimeError):  # RuntimeError or a subclass: the package is installed, the library is not
        return None
    return Compiler(f"nvrtc {version[0]}.{version[1]}", functools.partial(_compile_by_nvrtc, nvrtc))


def _compile_by_nvrtc(nvrtc: ModuleType, source: str, architecture: str, options: Sequence[str]) -> Compiled:
    (program,) = _checked(nvrtc, nvrtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, None, None))
    try:
        given = [option.encode() for option in (f"--gpu-architecture={architecture}", *OPTIONS, *options)]
        status = nvrtc.nvrtcCompileProgram(program, len(given), given)[0]
        log = _text(nvrtc, program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog).decode(errors="replace")
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise CompilationError(f"NVRTC cannot compile for {architecture}: {_first_error(log) or status.name}")
        return Compiled(_text(nvrtc, program, nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN), log)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _text(nvrtc: ModuleType, program: Any, size_of: Callable[..., Any], read: Callable[..., Any]) -> bytes:
    (size,) = _checked(nvrtc, size_of(program))
    text = bytearray(size)
    _checked(nvrtc, read(program, text))
    return bytes(text)


def _checked(nvrtc: ModuleType, answer: tuple[Any, ...]) -> tuple[Any, ...]:
    if answer[0] != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise CompilationError(f"NVRTC failed: {answer[0].name}")
    return answer[1:]


def nvcc_compiler() -> Compiler | None:
    """nvcc as a compiler. None: it is not on PATH or does not run."""
    program = shutil.which("nvcc")
    if program is None:
        return None
    try:
        shown = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=NVCC_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return Compiler(f"nvcc {shown.stdout}", functools.partial(_compile_by_nvcc, program))


def _compile_by_nvcc(program: str, source: str, architecture: str, options: Sequence[str]) -> Compiled:
    with tempfile.TemporaryDirectory() as folder:
        text, cubin = Path(folder) / "kernel.cu", Path(folder) / "kernel.cubin"
        text.write_text(source)
        given = (f"--gpu-architecture={architecture}", *OPTIONS, *options, "-o", str(cubin), str(text))
        run = [program, "--cubin", *given]
        done = subprocess.run(run, capture_output=True, text=True, timeout=NVCC_SECONDS)
        if done.returncode:
            raise CompilationError(f"nvcc cannot compile for {architecture}: {_first_error(done.stderr)}")
        return Compiled(cubin.read_bytes(), done.stderr)


def _first_error(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return next((line for line in lines if re.search(r"\berror\b", line)), lines[0] if lines else "")
