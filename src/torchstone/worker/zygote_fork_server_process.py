"""The fork server: imports torch once, then forks zygotes (processes that fork workers) on request.

:mod:`torchstone.supervisor.zygote_fork_server` is the caller's end.
"""

from __future__ import annotations

import functools
import os
import signal
import socket
import sys
import tempfile

from torchstone.processes.keeper import in_child
from torchstone.schema import decode
from torchstone.worker import zygote

_MOST_REQUEST_BYTES = 1 << 16


def main() -> None:
    """``python -m torchstone.worker.zygote_fork_server_process REQUESTS_DESCRIPTOR DEVICE_TYPE PRELOAD``."""
    requests = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command line handles Ctrl-C
    with tempfile.TemporaryDirectory(prefix="torchstone-") as folder:
        zygote.prepare(sys.argv[2], sys.argv[3], folder)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # zygotes are reaped by the kernel
    while True:
        request, descriptors, _, _ = socket.recv_fds(requests, _MOST_REQUEST_BYTES, 1)
        if not descriptors:
            return  # the process that wanted zygotes is gone
        if os.fork() == 0:
            requests.close()
            in_child(functools.partial(_be_zygote, descriptors[0], request))
        os.close(descriptors[0])


def _be_zygote(control: int, request: bytes) -> None:
    """Become a zygote: set the requested environment, wait for a judge's folder, and serve that judge."""
    os.setsid()
    os.environ.update(decode(request, dict[str, str]))
    connection = socket.socket(fileno=control)
    staging = zygote.receive_staging(connection)
    if staging is not None:
        zygote.serve(connection, staging)


if __name__ == "__main__":
    main()
