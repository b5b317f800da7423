"""Builds C++ and CUDA source into a function that can be called. Runs in the worker only.

The judge's ``Build`` command builds the files; without it the first call does. The compilers are called directly,
without ninja and setuptools. The flags and the pybind11 module are those of `torch.utils.cpp_extension`. The module is
written here unless the source defines its own. Its headers take most of the time: about ten seconds of processor time,
and another ten if the source includes all of ATen.

A C++ function has no parameter names or defaults in Python. It gets the operator's arguments in the schema's order, as
many as it takes. Arguments that the call leaves out get the schema's defaults.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from torchstone import operators
from torchstone.backends.find_kernel_function import missing_entry
from torchstone.backends.native_source import compiled_files, declaration_in, functions_in, mentions
from torchstone.processes.toolchain import find_cxx, find_nvcc
from torchstone.schema import SourceFiles, content_key

MODULE = "torchstone_native"
_unbuilt: list[Callable[[], object]] = []
"""A build function for each native kernel that was loaded since the last :func:`build_all`."""
_MOST_ERROR_LINES = 6
"""Most lines of the compiler's output that an error message quotes."""
_OWN_BINDING = "PYBIND11_MODULE"
"""A source with this text defines its own pybind11 module."""
_BINDING = """
#include <ATen/core/Tensor.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

namespace torch {{
using namespace at;
}}
{declaration}
namespace torchstone {{
template <class Result, class... Arguments>
constexpr int arity(Result (*)(Arguments...)) {{
  return sizeof...(Arguments);
}}
}}  // namespace torchstone

PYBIND11_MODULE(TORCH_EXTENSION_NAME, found) {{
  found.def("{entry}", torch::wrap_pybind_function(&{entry}));
  found.attr("arity") = torchstone::arity(&{entry});
}}
"""
_NVCC_FLAGS = (
    "-D__CUDA_NO_HALF_OPERATORS__",
    "-D__CUDA_NO_HALF_CONVERSIONS__",
    "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "-D__CUDA_NO_HALF2_OPERATORS__",
    "--expt-relaxed-constexpr",
    "-Xcompiler=-fPIC",
)


class BuildError(Exception):
    """The source cannot be built. After a failed compilation the message holds the compiler's first errors."""


def native_kernel(source: SourceFiles, operator: str, folder: Path) -> Callable[..., Any]:
    """The function ``source.entry`` of the source files, which lie in the folder.

    :func:`build_all` builds them; otherwise the function's first call does. A library that an earlier worker of this
    candidate built is used again.
    """
    _require_entry(source)
    if source.files[0].name.endswith(".cu") and not torch.cuda.is_available():
        raise NotImplementedError("a CUDA kernel needs a GPU")
    call: Callable[..., Any] | None = None

    def build() -> Callable[..., Any]:
        nonlocal call
        if call is None:
            call = _callable(_import(_library(source, folder)), source.entry, operator)
        return call

    def kernel(*args: Any, **kwargs: Any) -> Any:
        return (call or build())(*args, **kwargs)

    _unbuilt.append(build)
    return kernel


def build_all() -> None:
    """Build every kernel of this worker that is not built yet."""
    while _unbuilt:
        _unbuilt.pop()()


def _library(source: SourceFiles, folder: Path) -> Path:
    """The shared library of these files: one that an earlier worker built, or a new one."""
    library = folder.parent / "native" / f"{content_key(source.files, source.entry)}.so"
    if not library.is_file():
        library.parent.mkdir(exist_ok=True)
        _build(source, folder).replace(library)
    return library


def _require_entry(source: SourceFiles) -> None:
    """Raise :class:`BuildError` if no file mentions the entry function. Runs on loading, before anything is built."""
    files = compiled_files(source.files)
    if any(_OWN_BINDING in file.text or mentions(file.text, source.entry) for file in files):
        return
    found = (name for file in files for name in functions_in(file.text))
    raise BuildError(missing_entry(" and ".join(file.name for file in files), source.entry, found))


def _callable(module: Any, entry: str, operator: str) -> Callable[..., Any]:
    """The module's entry function, made callable with the operator's arguments."""
    function: Callable[..., Any] | None = getattr(module, entry, None)
    if function is None:
        raise BuildError(f"the module that the source makes defines no '{entry}'")
    if not hasattr(module, "arity"):  # the source defines its own module, which may have parameter names and defaults
        return function
    parameters = operators.resolve(operator)._schema.arguments
    return _by_position(function, entry, int(module.arity), parameters)


def _by_position(function: Callable[..., Any], entry: str, arity: int, parameters: Sequence[Any]) -> Callable[..., Any]:
    """A function that accepts a call of the operator and passes on the schema's first ``arity`` arguments."""
    taken = parameters[:arity]
    not_taken = {parameter.name for parameter in parameters[arity:]}

    def call(*args: Any, **kwargs: Any) -> Any:
        if len(args) == arity and not kwargs:
            return function(*args)
        given = {parameter.name: value for parameter, value in zip(parameters, args, strict=False)} | kwargs
        if unknown := [name for name in given if name in not_taken]:
            raise TypeError(f"{entry} takes {arity} arguments, and the call gives {', '.join(unknown)} too")
        return function(*(_value(parameter, given) for parameter in taken))

    return call


def _value(parameter: Any, given: Mapping[str, Any]) -> Any:
    """The argument that the call gives for a parameter, or the parameter's default."""
    if parameter.name in given:
        return given[parameter.name]
    if not parameter.has_default_value():
        raise TypeError(f"the call gives no {parameter.name}")
    return parameter.default_value


def _import(library: Path) -> Any:
    loader = importlib.machinery.ExtensionFileLoader(MODULE, str(library))
    spec = importlib.util.spec_from_file_location(MODULE, library, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


# ---- compilers


def _build(source: SourceFiles, folder: Path) -> Path:
    """Compile each file that has the first file's stem, and link them to a shared library."""
    files = [folder / file.name for file in compiled_files(source.files)]
    files += _bind(files, source.entry)
    on_cuda = any(file.suffix == ".cu" for file in files)
    command = _cuda_compiler() if on_cuda else _compiler()
    objects = [str(file.with_suffix(file.suffix + ".o")) for file in files]
    for file, target in zip(files, objects, strict=True):
        _run([*command, "-O3", "-std=c++20", *_definitions(), *_includes(), "-c", str(file), "-o", target], folder)
    library = folder / f"{MODULE}.so"
    _run([*command, "-shared", *objects, "-o", str(library), *_libraries(on_cuda)], folder)
    return library


def _bind(files: Sequence[Path], entry: str) -> list[Path]:
    """Write the definition of the pybind11 module, and return the new file if there is one.

    If the declaration of a CUDA function can be read from the source, the definition gets a C++ file of its own. nvcc
    takes much longer for the headers than a C++ compiler. Otherwise it is appended to the file that has the function.
    """
    texts = {file: file.read_text(encoding="utf-8") for file in files}
    if any(_OWN_BINDING in text for text in texts.values()):
        return []
    by_language = sorted(files, key=lambda file: file.suffix == ".cu")
    file = next(file for file in by_language if mentions(texts[file], entry))
    declaration = declaration_in(texts[file], entry) if file.suffix == ".cu" else None
    if declaration is None:
        file.write_text(texts[file] + _BINDING.format(entry=entry, declaration=""), encoding="utf-8")
        return []
    binding = file.with_name(f"{MODULE}_binding.cpp")
    binding.write_text(_BINDING.format(entry=entry, declaration=declaration), encoding="utf-8")
    return [binding]


def _compiler() -> list[str]:
    found = find_cxx()
    if found is None:
        raise BuildError("no C++ compiler is here: install g++ or name one in CXX")
    return [found, "-fPIC"]


def _cuda_compiler() -> list[str]:
    """The command that compiles all files of a CUDA kernel, C++ too: nvcc finds CUDA's headers and libraries itself."""
    nvcc = find_nvcc()
    if nvcc is None:
        raise BuildError("nvcc is not here: install NVIDIA's CUDA toolkit or name its folder in CUDA_HOME")
    return [nvcc, f"-ccbin={_compiler()[0]}", *_NVCC_FLAGS, *_architecture()]


def _architecture() -> list[str]:
    """Options that make nvcc compile for the current device only."""
    major, minor = torch.cuda.get_device_capability()
    number = f"{major}{minor}" + ("a" if major >= 9 else "")
    return [f"-gencode=arch=compute_{number},code=sm_{number}"]


def _definitions() -> list[str]:
    abi = int(torch.compiled_with_cxx11_abi())
    return [f"-DTORCH_EXTENSION_NAME={MODULE}", "-DTORCH_API_INCLUDE_EXTENSION_H", f"-D_GLIBCXX_USE_CXX11_ABI={abi}"]


def _torch_folder() -> Path:
    return Path(torch.__file__).parent


def _includes() -> list[str]:
    headers = _torch_folder() / "include"
    folders = [headers, headers / "torch" / "csrc" / "api" / "include", Path(sysconfig.get_path("include"))]
    return [part for folder in folders for part in ("-isystem", str(folder))]


def _libraries(on_cuda: bool) -> list[str]:
    names = ["c10", "torch_cpu", "torch", "torch_python", *(("c10_cuda", "torch_cuda") if on_cuda else ())]
    return [f"-L{_torch_folder() / 'lib'}", *(f"-l{name}" for name in names)]


def _run(command: Sequence[str], folder: Path) -> None:
    """Run a compiler and print its output to the log. If it fails, :class:`BuildError` quotes its first errors."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", check=False)
    output = done.stdout + done.stderr
    print(output, end="", file=sys.stderr)
    if done.returncode:
        lines = output.replace(f"{folder}/", "").splitlines()
        errors = [line for line in lines if "error" in line or "undefined reference" in line] or lines
        raise BuildError("\n".join(errors[:_MOST_ERROR_LINES]) or f"{command[0]} ended with {done.returncode}")
