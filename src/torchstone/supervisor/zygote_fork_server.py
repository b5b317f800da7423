"""Client of the process that imports torch once and forks a zygote (a process that forks workers) for each judge.

That process is the *fork server* (``zygote_fork_server_process.py``). Importing torch and its compilers takes seconds
of a core. If every judge did that for its own zygote, a dozen judges would keep the machine busy for ten seconds with
the same work. A fork takes milliseconds. Each judge still has its own zygote, which ends with the judge.
"""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Mapping

from torchstone.protocol.worker_environment import Preload, start_apart
from torchstone.schema import encode

_STOP_SECONDS = 5.0
"""Longest wait for the fork server to end by itself; then it is killed."""


class ZygoteForkServer:
    """Handle on the fork server, for the code that starts judges."""

    def __init__(self, device_type: str, preload: Preload = "compiler") -> None:
        """Start the fork server. Zygotes can be requested at once, and are forked when it has imported everything."""
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = start_apart("torchstone.worker.zygote_fork_server_process", theirs, device_type, preload)
        theirs.close()

    def order(self, environment: Mapping[str, str]) -> socket.socket | None:
        """Request a zygote with these additional environment variables. None: the fork server has ended.

        Returns the zygote's control socket.
        """
        ours, theirs = socket.socketpair()
        try:
            socket.send_fds(self._requests, [encode(dict(environment))], [theirs.fileno()])
        except OSError:
            ours.close()
            return None
        finally:
            theirs.close()
        return ours

    def abandon(self) -> None:
        """Close the inherited socket in a forked child. The fork server still belongs to the parent."""
        self._requests.close()

    def stop(self) -> None:
        """End the fork server. Its zygotes run on until their judges end."""
        self._requests.close()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:  # it is still importing
            self._process.kill()
            self._process.wait()
