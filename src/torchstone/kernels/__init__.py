"""Built-in kernels: LayerNorm, GELU, Swish and losses, in Triton and in CUDA C++.

`triton/` and `cuda/` hold one folder per operator, in the layout that the backend `directory` reads. The functions here
call these kernels with autograd. Names are loaded when they are first used, because the functions need torch and the
command line must not import it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = [
    "cross_entropy",
    "gelu",
    "kernel",
    "layer_norm",
    "layer_norm_gelu",
    "mse_loss",
    "operators",
    "silu",
    "swish",
    "why_unavailable",
]

if TYPE_CHECKING:
    from torchstone.kernels.autograd_functions import (
        cross_entropy,
        gelu,
        layer_norm,
        layer_norm_gelu,
        mse_loss,
        silu,
        swish,
    )
    from torchstone.kernels.catalogue import kernel, operators, why_unavailable

_IN_CATALOGUE = ("kernel", "operators", "why_unavailable")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'torchstone.kernels' has no attribute '{name}'")
    from importlib import import_module

    home = "catalogue" if name in _IN_CATALOGUE else "autograd_functions"
    found = getattr(import_module(f"torchstone.kernels.{home}"), name)
    globals()[name] = found  # the next use does not come here
    return found
