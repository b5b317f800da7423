"""Loads a kernel from a folder as a function of this process.

Separate from the workers' loading, which has a whole process for one kernel. Here many kernels share a process, and
each has its own modules: those in its folder and those that it shares with others. They are in ``sys.modules`` only
while they are imported, so that neither other kernels nor the user's program see them. A kernel's import statements
find them at any time, because its modules have an ``__import__`` of their own.
"""

from __future__ import annotations

import builtins
import contextlib
import itertools
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import resolve_name, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from torchstone.backends.missing_imports import added_modules
from torchstone.backends.native_source import is_native
from torchstone.schema import SourceFiles

_numbers = itertools.count(1)
"""Numbers for module names, so that a kernel that is loaded again gets a new name."""
_lock = threading.RLock()
"""Held by a thread while modules of a kernel are in ``sys.modules``."""


class KernelLoadError(Exception):
    """A kernel's file gives no function. The message is one line and says why."""


class Loaded(NamedTuple):
    """A kernel's function, and the name of its module, which stays in ``sys.modules`` until ``unload``."""

    function: Callable[..., Any]
    module: str

    def unload(self) -> None:
        """Remove the module from ``sys.modules``. The function itself still works."""
        sys.modules.pop(self.module, None)


def load_kernel(source: SourceFiles, root: Path) -> Loaded:
    """Run the kernel's file as a module and take its entry point."""
    if is_native(source.files[0].name):
        raise KernelLoadError("kernels in C++ and CUDA can be judged, but not enabled; write it in Python")
    path = root / source.label
    modules = _KernelModules(source, path, root)
    module = ModuleType(f"torchstone_installed_{next(_numbers)}_{path.stem}")
    module.__file__ = str(path)  # where it lies: Triton reads its kernels' source from there, and tracebacks show it
    vars(module).update(added_modules(source), __builtins__=modules.builtins)
    sys.modules[module.__name__] = module
    try:
        with modules.importable():
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
    """Finds and loads the modules that belong to one kernel, and no others. Keeps the loaded ones."""

    def __init__(self, source: SourceFiles, kernel: Path, root: Path) -> None:
        modules = (file.name for file in source.files[1:] if file.name.endswith(".py"))
        self.builtins = {**vars(builtins), "__import__": self._import}
        """``__builtins__`` of the kernel's modules."""
        self._files = {_module_name(name): _located(name, kernel, root) for name in modules}
        self._loaded: dict[str, ModuleType] = {}
        self._is_importable = False
        self._is_loading = True
        """Until the kernel's file has been run. Threads that it starts meanwhile do not wait for the lock."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name not in self._files:
            return None
        file = self._files[name]
        return spec_from_file_location(name, file, loader=_Loader(name, str(file), self.builtins))

    @contextlib.contextmanager
    def importable(self) -> Iterator[None]:
        """Within it, the kernel's modules can be imported. They hide loaded modules of the same names."""
        with _lock:
            if self._is_importable:  # a module of the kernel imports another one
                yield
                return
            hidden = {name: sys.modules.pop(name) for name in self._files if name in sys.modules}
            sys.modules.update(self._loaded)
            sys.meta_path.insert(0, self)
            self._is_importable = True
            try:
                yield
            finally:
                self._is_importable = self._is_loading = False
                sys.meta_path.remove(self)
                self._loaded = {name: sys.modules.pop(name) for name in self._files if name in sys.modules}
                sys.modules.update(hidden)

    def _import(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """Serves the kernel's import statements instead of Python's ``__import__``."""
        package = str((globals or {}).get("__package__") or "")
        full = resolve_name("." * level + name, package) if level and package else "." * level + name
        top = full.partition(".")[0]
        if top not in self._files or self._is_loading:
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        known = self._loaded.get(full)
        if known is not None and all(hasattr(known, item) for item in fromlist or ()):
            return known if fromlist else self._loaded[top]
        with self.importable():
            return builtins.__import__(name, globals, locals, fromlist or (), level)


class _Loader(SourceFileLoader):
    """Loads a module of a kernel, whose import statements find the kernel's other modules at any time."""

    def __init__(self, name: str, path: str, known: Mapping[str, Any]) -> None:
        super().__init__(name, path)
        self._builtins = known

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__builtins__"] = self._builtins
        super().exec_module(module)


def _module_name(file: str) -> str:
    """`common/__init__.py` -> `common`, `common/tiles.py` -> `common.tiles`."""
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _located(name: str, kernel: Path, root: Path) -> Path:
    """Path of a file that the backend read: in the kernel's folder, in its parent folder, or at the root."""
    around = (kernel.parent.parent, root)
    folders = around if "/" in name else (kernel.parent, *around)
    return next((path for folder in folders if (path := folder / name).is_file()), folders[0] / name)
