"""Torchstone judges PyTorch operator kernels: right or wrong, how fast, how far from the hardware's limit.

The public API. Names are loaded when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = [
    "Booleans",
    "Case",
    "DType",
    "Deadlines",
    "Evaluation",
    "InfrastructureError",
    "Integers",
    "Judge",
    "Limits",
    "Normal",
    "Record",
    "Scalar",
    "Sequence",
    "Settings",
    "Tensor",
    "TorchstoneError",
    "Uniform",
    "UsageError",
    "capture",
    "check",
    "close",
    "disable",
    "enable",
    "evaluate",
    "evaluate_many",
    "measure",
    "run_comprehensive_benchmark",
    "sweep",
]

if TYPE_CHECKING:
    from torchstone.api import Evaluation, Judge, Settings, capture, check, close, evaluate, evaluate_many, measure
    from torchstone.errors import InfrastructureError, TorchstoneError, UsageError
    from torchstone.installing import disable, enable
    from torchstone.schema import (
        Booleans,
        Case,
        Deadlines,
        DType,
        Integers,
        Limits,
        Normal,
        Record,
        Scalar,
        Sequence,
        Tensor,
        Uniform,
    )
    from torchstone.sweeps import run_comprehensive_benchmark, sweep


_SWEEP_FUNCTIONS = ("run_comprehensive_benchmark", "sweep")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'torchstone' has no attribute '{name}'")
    from importlib import import_module

    if name in _SWEEP_FUNCTIONS:  # the search below would find the module `torchstone.schema.sweep`
        return getattr(import_module("torchstone.sweeps"), name)
    modules = (import_module(f"torchstone.{module}") for module in ("errors", "schema", "api", "installing"))
    return next(getattr(module_with_name, name) for module_with_name in modules if hasattr(module_with_name, name))
