"""BASELINE AGAINST OPTIMIZED: find pairs of benchmark files, run both sides in turn, compare, report.

The public names. They are loaded when they are first used: importing a base class must not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

_HOMES = {
    "Discovery": "torchstone.harness.discovery",
    "Pair": "torchstone.harness.discovery",
    "PairsObserver": "torchstone.harness.run",
    "PairsRequest": "torchstone.harness.request",
    "PairsResult": "torchstone.harness.run",
    "discover": "torchstone.harness.discovery",
    "discover_benchmarks": "torchstone.harness.discovery",
    "run_pairs": "torchstone.harness.run",
}

__all__ = [
    "Discovery",
    "Pair",
    "PairsObserver",
    "PairsRequest",
    "PairsResult",
    "discover",
    "discover_benchmarks",
    "run_pairs",
]

if TYPE_CHECKING:
    from torchstone.harness.discovery import Discovery, Pair, discover, discover_benchmarks
    from torchstone.harness.request import PairsRequest
    from torchstone.harness.run import PairsObserver, PairsResult, run_pairs


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'torchstone.harness' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
