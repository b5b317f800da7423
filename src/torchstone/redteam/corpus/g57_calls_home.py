# title: opens a connection, resolves a name, binds a port
# family: 57
# kind: cheat
# case: relu -> crashed/exception
import socket

import torch


def kernel(x):
    for attempt in (
        lambda: socket.create_connection(("1.1.1.1", 53), timeout=0.5),
        lambda: socket.create_connection(("127.0.0.1", 22), timeout=0.5),
        lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("1.1.1.1", 53)),
        lambda: socket.create_server(("0.0.0.0", 0)),
    ):
        try:
            attempt()
        except OSError:
            continue
        return torch.clamp(x, min=0)
    raise PermissionError("no way out")
