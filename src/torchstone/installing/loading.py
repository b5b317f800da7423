"""From a folder's kernel to a function of this process.

Separate from the workers' loading, which may take its whole process for one kernel: here many kernels share one, so
each sees the modules of its own folder while it loads, and nothing of that is left behind for the next.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

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
    sys.modules[module.__name__] = module
    try:
        with _modules_beside(path, source):
            exec(compile(source.files[0].text, str(path), "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        del sys.modules[module.__name__]
        raise KernelLoadError(f"{type(error).__name__} while it loads: {error}") from error
    found = getattr(module, source.entry, None)
    if not callable(found):
        del sys.modules[module.__name__]
        raise KernelLoadError(f"it defines no function '{source.entry}'")
    return Loaded(found, module.__name__)


@contextlib.contextmanager
def _modules_beside(path: Path, source: SourceFiles) -> Iterator[None]:
    """The files beside the kernel can be imported meanwhile, whatever modules of the same names there are."""
    names = [Path(file.name).stem for file in source.files[1:]]
    hidden = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    folder = str(path.parent)
    if names:
        sys.path.insert(0, folder)
    try:
        yield
    finally:
        if names:
            sys.path.remove(folder)
        for name in names:
            sys.modules.pop(name, None)
        sys.modules.update(hidden)
