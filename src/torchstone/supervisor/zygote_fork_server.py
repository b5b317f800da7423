"""Client of the process that imports torch once and forks a zygote (a process that forks workers) for each judge.

That process is the *fork server*. Importing torch and its compilers takes seconds of a core. If every judge did that
for its own zygote, a dozen judges would keep the machine busy for ten seconds with the same work. A fork takes
milliseconds. Each judge still has a zygote to itself, which ends with it. ``zygote_fork_server_process.py`` is the
process itself.
"""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Mapping

from torchstone.protocol.worker_environment import Preload, start_apart
from torchstone.schema import encode

_STOP_SECONDS = 5.0


class ZygoteForkServer:
    """The fork server, as the code that starts judges sees it."""

    def __init__(self, device_type: str, preload: Preload = "compiler") -> None:
        """Starts it; zygotes can be ordered at once, and are born when it has imported everything."""
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = start_apart("torchstone.worker.zygote_fork_server_process", theirs, device_type, preload)
        theirs.close()

    def order(self, environment: Mapping[str, str]) -> socket.socket | None:
        """The control socket of a new zygote with these variables besides; None if the fork server is gone."""
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
        """In a forked child: close what was inherited. The fork server is the parent's."""
        self._requests.close()

    def stop(self) -> None:
        """End it. Its zygotes stay as long as their judges."""
        self._requests.close()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:  # it is still importing
            self._process.kill()
            self._process.wait()
