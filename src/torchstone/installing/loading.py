"""Loads a kernel of a folder as a function of this process.

Separate from the workers' loading, which has a whole process for one kernel. Here many kernels share one: each sees
the modules that travel with it while it loads, and none of them stays for the next.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Callable, Iterator
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from torchstone.backends.common_imports import added_modules
from torchstone.schema import SourceFiles

_numbers = itertools.count(1)
"""Two kernels never share a module's name, nor does one that is loaded again."""


class KernelLoadError(Exception):
    """Why a kernel's file gives no function; one line."""


class Loaded(NamedTuple):
    """A kernel's function, and the module that must be there for as long as it is called."""

    function: Callable[..., Any]
    module: str

    def unload(self) -> None:
        """The function still works, but nobody finds its module by name any more."""
        sys.modules.pop(self.module, None)


def load_kernel(source: SourceFiles, root: Path) -> Loaded:
    """Run the kernel's file as a module and take its entry point."""
    path = root / source.label
    module = ModuleType(f"torchstone_installed_{next(_numbers)}_{path.stem}")
    module.__file__ = str(path)  # where it lies: Triton reads its kernels' source from there, and tracebacks show it
    vars(module).update(added_modules(source))
    sys.modules[module.__name__] = module
    try:
        with _importing(_KernelModules(source, path, root)):
            exec(compile(source.files[0].text, str(path), "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        del sys.modules[module.__name__]
        raise KernelLoadError(f"{type(error).__name__} while it loads: {error}") from error
    found = getattr(module, source.entry, None)
    if not callable(found):
        del sys.modules[module.__name__]
        raise KernelLoadError(f"it defines no function '{source.entry}'")
    return Loaded(found, module.__name__)


class _KernelModules(MetaPathFinder):
    """Finds the modules that travel with a kernel, in the files where they lie, and no others."""

    def __init__(self, source: SourceFiles, kernel: Path, root: Path) -> None:
        modules = (file.name for file in source.files[1:] if file.name.endswith(".py"))
        self.files = {_module_name(name): _located(name, kernel, root) for name in modules}

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return spec_from_file_location(name, self.files[name]) if name in self.files else None


def _module_name(file: str) -> str:
    """`common/__init__.py` -> `common`, `common/tiles.py` -> `common.tiles`."""
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _located(name: str, kernel: Path, root: Path) -> Path:
    """Where a file lies that the backend read: in the kernel's folder, in the folder around that, or at the root."""
    around = (kernel.parent.parent, root)
    folders = around if "/" in name else (kernel.parent, *around)
    return next((path for folder in folders if (path := folder / name).is_file()), folders[0] / name)


@contextlib.contextmanager
def _importing(modules: _KernelModules) -> Iterator[None]:
    """These modules can be imported meanwhile, whatever modules of the same names there are."""
    hidden = {name: sys.modules.pop(name) for name in modules.files if name in sys.modules}
    sys.meta_path.insert(0, modules)
    try:
        yield
    finally:
        sys.meta_path.remove(modules)
        for name in modules.files:
            sys.modules.pop(name, None)
        sys.modules.update(hidden)
