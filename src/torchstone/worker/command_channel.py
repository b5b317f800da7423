"""The worker's connection to the judge: receives commands, sends replies."""

from __future__ import annotations

import os
import socket
import time

from torchstone.protocol.commands import GO, Command
from torchstone.protocol.json_framing import HEADER_BYTES, frame, frame_length
from torchstone.protocol.replies import Reply
from torchstone.schema import decode


class CommandChannel:
    """The socket on which commands arrive, and the pipe for replies."""

    def __init__(self, commands: socket.socket, replies: int) -> None:
        self._commands = commands
        self._replies = replies
        self.received_ns = 0
        """When the last command arrived, by ``time.perf_counter_ns``."""
        self.framing_ns = 0
        """How long the encoding of the last reply took."""

    def receive(self) -> tuple[Command, int | None] | None:
        """The next command and the descriptor that came with it, if any. None: the judge closed the socket."""
        header, descriptors, _, _ = socket.recv_fds(self._commands, HEADER_BYTES, 1)
        self.received_ns = time.perf_counter_ns()
        if len(header) < HEADER_BYTES:
            return None
        remaining = frame_length(header)
        parts: list[bytes] = []
        while remaining:
            part = self._commands.recv(remaining)
            if not part:
                return None
            parts.append(part)
            remaining -= len(part)
        return decode(b"".join(parts), Command), descriptors[0] if descriptors else None  # type: ignore[arg-type]

    def await_go(self) -> None:
        """Poll for the byte :data:`GO` without sleeping: a sleeping process is woken late, by a varying time."""
        while True:
            try:
                if self._commands.recv(1, socket.MSG_DONTWAIT) != GO:
                    os._exit(0)  # the judge is gone
                return
            except BlockingIOError:
                pass

    def send(self, reply: Reply) -> None:
        began = time.perf_counter_ns()
        data = frame(reply)
        self.framing_ns = time.perf_counter_ns() - began
        while data:
            data = data[os.write(self._replies, data) :]
