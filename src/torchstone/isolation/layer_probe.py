"""Finds out which sandbox layers this machine allows, by building a sandbox in which nothing runs."""

from __future__ import annotations

import contextlib
import socket
from functools import cache

from torchstone.errors import TorchstoneError
from torchstone.isolation.confined_handle import Confined
from torchstone.schema import IsolationLevel, Layer

_MEMORY_BYTES = 1 << 30


def serve(connection: socket.socket) -> None:
    """Nothing, until the caller is gone."""
    with contextlib.suppress(OSError):
        connection.recv(1)


@cache
def layers_here(device_type: str = "cpu", isolation: IsolationLevel = "best") -> tuple[Layer, ...]:
    """The layers with what each does here; none if no sandbox can be closed. Takes about half a second, once."""
    if isolation == "none":
        return ()
    try:
        probe = Confined(__name__, device_type, _MEMORY_BYTES)
    except TorchstoneError:
        return ()
    try:
        return probe.layers
    except TorchstoneError:
        return ()
    finally:
        probe.end()
