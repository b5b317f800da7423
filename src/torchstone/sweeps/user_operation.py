"""Loads an operation that a user's file defines, in the process that measures: the user's own, trusted code.

The file holds ``make_inputs``, ``reference`` and ``implementations``; docs/sweeps.md describes it.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from torchstone.errors import UsageError
from torchstone.schema.sweep import SweepPoint
from torchstone.sweeps.operations import Inputs, Moved, Operation, dtype_of
from torchstone.sweeps.tensor_pool import TensorPool


def load_operation(path: str, seed: int) -> Operation:
    """The operation that the file defines. Raises `UsageError`."""
    module = _imported(Path(path))
    make, reference, offered = (getattr(module, name, None) for name in ("make_inputs", "reference", "implementations"))
    for name, found in (("make_inputs", make), ("reference", reference)):
        if not callable(found):
            raise UsageError(f"{path} has no function '{name}'. See docs/sweeps.md for what such a file holds.")
    if not isinstance(offered, Mapping) or not offered or not all(map(callable, offered.values())):
        raise UsageError(f"{path} has no 'implementations': a dictionary of functions by name, at least one.")
    moved = getattr(module, "moved_bytes", None)
    asking = getattr(module, "differentiated", None)
    return Operation(
        name=str(getattr(module, "name", Path(path).stem)),
        make_inputs=_input_maker(make, seed),
        reference=reference,  # type: ignore[arg-type]  # seen to be callable
        implementations={str(name): function for name, function in offered.items()},
        differentiated=None if asking is None else tuple(asking),
        moved=None if moved is None else lambda point, part: Moved(*moved(*_sizes(point), dtype_of(point), part)),
    )


def _imported(path: Path) -> ModuleType:
    name = f"torchstone_operation_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path.absolute())
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} cannot be imported as Python.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.absolute().parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # a file of the user's may raise anything
        raise UsageError(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    return module


def _sizes(point: SweepPoint) -> tuple[int, int, int]:
    return point.batch_size, point.sequence_length, point.tensor_dimension


def _input_maker(make: Any, seed: int) -> Callable[[SweepPoint, TensorPool, int], list[Inputs]]:
    def make_inputs(point: SweepPoint, pool: TensorPool, copies: int) -> list[Inputs]:
        generator = torch.Generator(pool.device).manual_seed(seed)
        made = make(*_sizes(point), dtype_of(point), pool.device, generator)
        first: Inputs = tuple(made) if isinstance(made, (tuple, list)) else (made,)
        return [first, *(tuple(map(_copied, first)) for _ in range(copies - 1))]

    return make_inputs


def _copied(argument: Any) -> Any:
    return argument.clone() if isinstance(argument, torch.Tensor) else argument
