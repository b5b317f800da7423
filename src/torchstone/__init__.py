"""Torchstone judges PyTorch operator kernels: is it right, how fast, how far from the limit, can I trust it.

The flat public API. Names are loaded when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_API = ("Evaluation", "Settings", "check", "evaluate", "evaluate_many", "measure")
_SCHEMA = (
    "Case", "Tensor", "Scalar", "Sequence", "DType", "Normal", "Uniform", "Integers", "Booleans", "Deadlines",
    "Limits", "Record",
)  # fmt: skip
_ERRORS = ("TorchstoneError", "UsageError", "InfrastructureError")

__all__ = [*_API, *_SCHEMA, *_ERRORS]  # noqa: PLE0604 - names of the lazily loaded members

if TYPE_CHECKING:
    from torchstone.api import Evaluation, Settings, check, evaluate, evaluate_many, measure
    from torchstone.errors import InfrastructureError, TorchstoneError, UsageError
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


def __getattr__(name: str) -> Any:
    from importlib import import_module

    for module, names in (("api", _API), ("schema", _SCHEMA), ("errors", _ERRORS)):
        if name in names:
            return getattr(import_module(f"torchstone.{module}"), name)
    raise AttributeError(f"module 'torchstone' has no attribute '{name}'")
