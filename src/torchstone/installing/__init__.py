"""Installing: a folder of kernels replaces ATen's operators in the user's own models.

Kernels run in the caller's process with the caller's rights. Their results are not compared with torch's; only number,
type and aliasing are checked (`operator_schema_checks`). Names are loaded when they are first used, because most of
them need torch and the command line must not import it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["Installation", "disable", "enable", "original"]

if TYPE_CHECKING:
    from torchstone.installing.dispatcher_registrations import original
    from torchstone.installing.enabling import Installation, disable, enable


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'torchstone.installing' has no attribute '{name}'")
    from importlib import import_module

    home = "dispatcher_registrations" if name == "original" else "enabling"
    return getattr(import_module(f"torchstone.installing.{home}"), name)
