"""Sweeps: checks and times implementations of operations over a grid of batch size, sequence length and dimension.

The public names. They are loaded when they are first used: importing them must not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

_HOMES = {
    "SweepResult": "torchstone.sweeps.run",
    "run_comprehensive_benchmark": "torchstone.sweeps.python_api",
    "sweep": "torchstone.sweeps.python_api",
}

__all__ = ["SweepResult", "run_comprehensive_benchmark", "sweep"]

if TYPE_CHECKING:
    from torchstone.sweeps.python_api import run_comprehensive_benchmark, sweep
    from torchstone.sweeps.run import SweepResult


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'torchstone.sweeps' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
