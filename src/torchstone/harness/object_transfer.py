"""Recreates a caller's benchmark object in another process, from its class's file and pickled constructor arguments.

Attributes are pickled too, or the whole object if its arguments are not known. Where that fails (a class of a REPL, a
local class, an open file), the benchmark runs in a thread of the caller's process.
"""

from __future__ import annotations

import importlib
import importlib.util
import pickle
import sys
from pathlib import Path
from typing import Any

from torchstone.benchmarks.loading import make_importable
from torchstone.harness.benchmark_process_messages import ObjectSource

_MAIN_ALIAS = "torchstone_caller_main"
_ARGUMENTS = "_constructor_arguments"


class CannotCrossError(Exception):
    """An object cannot be recreated in another process; the text is the reason, in one line."""


def source_of(benchmark: Any) -> ObjectSource:
    """What another process needs to recreate the object. Must be called before `setup`."""
    kind = type(benchmark)
    file = _file_of(kind)
    arguments = getattr(benchmark, _ARGUMENTS, None)
    try:
        pickled_arguments = None if arguments is None else pickle.dumps(arguments)
    except Exception:  # noqa: BLE001 - pickle raises what the object's own code does
        pickled_arguments = None
    state = _state(benchmark, whole=pickled_arguments is None)
    return ObjectSource(
        kind.__module__,
        file,
        kind.__qualname__,
        tuple(str(Path(entry or ".").resolve()) for entry in sys.path),
        pickled_arguments,
        state,
    )


def _file_of(kind: type) -> str:
    if "<locals>" in kind.__qualname__:
        raise CannotCrossError(f"class {kind.__name__} is local to a function")
    module = sys.modules.get(kind.__module__)
    file = getattr(module, "__file__", None)
    if file is None or not Path(file).is_file():
        raise CannotCrossError(f"class {kind.__name__} is not defined in a file")
    return str(Path(file).resolve())


def _state(benchmark: Any, whole: bool) -> bytes | None:
    """The pickled object, or only its attributes; None if the attributes cannot be pickled."""
    what = benchmark if whole else {name: value for name, value in vars(benchmark).items() if name != _ARGUMENTS}
    try:
        return pickle.dumps(what)
    except Exception as error:
        if whole:
            raise CannotCrossError(f"{type(benchmark).__name__} cannot be pickled: {error}") from error
        return None


def restore(source: ObjectSource) -> Any:
    """Recreate the object, in the process that runs it."""
    for entry in source.search_path:
        if entry not in sys.path:
            sys.path.append(entry)
    module = _module(source)
    if source.arguments is None:
        assert source.state is not None, "an object without arguments has crossed whole"
        return pickle.loads(source.state)
    kind: Any = module
    for name in source.qualname.split("."):
        kind = getattr(kind, name)
    args, kwargs = pickle.loads(source.arguments)
    benchmark = kind(*args, **kwargs)
    if source.state is not None:
        benchmark.__dict__.update(pickle.loads(source.state))
    return benchmark


def _module(source: ObjectSource) -> Any:
    path = Path(source.file)
    make_importable(path.parent)
    if source.module != "__main__":
        try:
            found = importlib.import_module(source.module)
            if Path(getattr(found, "__file__", None) or "/").resolve() == path:
                return found
        except ImportError:
            pass
    spec = importlib.util.spec_from_file_location(_MAIN_ALIAS, path)
    assert spec is not None, "a Python file"
    assert spec.loader is not None, "a Python file"
    module = importlib.util.module_from_spec(spec)
    sys.modules[_MAIN_ALIAS] = module
    sys.modules[source.module] = module  # pickled objects refer to their classes by this name
    spec.loader.exec_module(module)
    return module
