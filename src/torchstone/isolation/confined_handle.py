"""Starts a sandboxed process for third-party files, such as KernelBench problems, and sends it requests.

The process has the same sandbox as a worker, and runs the function ``serve(connection)`` of a module. Requests and
replies are msgpack with a length before it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from typing import Any, TypeVar

import msgspec

from torchstone.errors import InfrastructureError, IsolationUnavailableError
from torchstone.isolation.sandbox import Policy
from torchstone.processes.child_process import ending_in_words
from torchstone.processes.msgpack_framing import HEADER_BYTES, frame, length_in
from torchstone.protocol.worker_environment import clean_environment
from torchstone.schema import IsolationLevel, Layer, Limits, encode

_START_SECONDS = 120.0
"""Longest time for the process to start: it imports torch, perhaps on a busy machine."""
_END_SECONDS = 30.0
"""Longest wait for the end of the process: freeing its memory can take the system seconds."""
_MOST_REPLY_BYTES = 64 << 20
"""Longest reply that is accepted. Replies have no tensors in them."""

T = TypeVar("T")


class Hello(msgspec.Struct, frozen=True):
    """The first reply: the sandbox is closed."""

    layers: tuple[Layer, ...]


class ConfinedEndedError(Exception):
    """The process has ended, or its reply does not decode. The message says how it ended."""


class ConfinedTimeoutError(Exception):
    """There was no reply in time. The process was ended."""


class Confined:
    """Handle on a sandboxed process. It must not be used by several threads at once."""

    def __init__(
        self,
        module: str,
        device_type: str,
        memory_bytes: int,
        isolation: IsolationLevel = "best",
        threads: int = 1,
    ) -> None:
        """Start the process; does not wait until it is ready."""
        self._isolation = isolation
        self._staging = tempfile.mkdtemp(prefix="torchstone-")
        os.chmod(self._staging, 0o711)  # a process with another uid must reach its scratch folder in it
        limits = Limits(memory_bytes=memory_bytes)
        policy = Policy(isolation, limits, device_type, self._staging, threads=threads)
        self._layers: tuple[Layer, ...] | None = None
        self._is_over = False
        self._connection, theirs = socket.socketpair()
        leash, self._leash = os.pipe2(os.O_CLOEXEC)
        try:
            self._process = _start(module, policy, theirs.fileno(), leash)
        except OSError as error:
            self._connection.close()
            os.close(self._leash)
            shutil.rmtree(self._staging, ignore_errors=True)
            raise InfrastructureError(f"no process for third-party code can be started: {error}") from error
        finally:
            theirs.close()
            os.close(leash)

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The layers of its sandbox. Waits for the process to start."""
        self._await_hello()
        assert self._layers is not None
        return self._layers

    def ask(self, message: Any, kind: type[T], seconds: float) -> T:
        """Its reply to a request. The time for the process to start does not count."""
        self._await_hello()
        until = time.monotonic() + seconds
        try:
            self._send(frame(message), until)
            return msgspec.msgpack.decode(self._receive(until), type=kind)
        except (TimeoutError, BlockingIOError):
            self.end()
            raise ConfinedTimeoutError from None
        except (ConnectionError, msgspec.MsgspecError, ValueError):
            raise ConfinedEndedError(self._ending()) from None

    def close_leash(self) -> None:
        """Close the leash: the process and all that it has started end soon. Another thread may be waiting for it."""
        leash, self._leash = self._leash, -1
        if leash >= 0:
            os.close(leash)

    def end(self) -> None:
        """End the process and all that it has started, and wait for that. Further calls do nothing."""
        if self._is_over:
            return
        self._is_over = True
        self.close_leash()
        self._connection.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._staging, ignore_errors=True)

    def _await_hello(self) -> None:
        """Wait for the first reply; raise if the process does not start, or strict isolation lacks a layer."""
        if self._layers is not None:
            return
        try:
            hello = msgspec.msgpack.decode(self._receive(time.monotonic() + _START_SECONDS), type=Hello)
        except (OSError, msgspec.MsgspecError, ValueError) as error:
            self.end()
            raise InfrastructureError(f"the process for third-party code does not start ({error}).") from error
        self._layers = hello.layers
        lacking = [layer for layer in hello.layers if not layer.active]
        if self._isolation == "strict" and lacking:
            self.end()
            details = "; ".join(f"{layer.name}: {layer.detail}" for layer in lacking)
            raise IsolationUnavailableError(
                f"--isolation strict: this machine does not offer {details}. "
                "See 'torchstone doctor', or run with --isolation best."
            )

    def _send(self, data: bytes, until: float) -> None:
        self._connection.settimeout(max(0.001, until - time.monotonic()))
        self._connection.sendall(data)

    def _receive(self, until: float) -> bytes:
        length = length_in(self._exactly(HEADER_BYTES, until))
        if length > _MOST_REPLY_BYTES:
            raise ValueError(f"its reply has {length} bytes")
        return self._exactly(length, until)

    def _exactly(self, count: int, until: float) -> bytes:
        """The next ``count`` bytes. Raises TimeoutError past ``until``, ConnectionResetError if the process ended."""
        data = bytearray()
        while len(data) < count:
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._connection.settimeout(left)
            part = self._connection.recv(count - len(data))
            if not part:
                raise ConnectionResetError("it ended")
            data += part
        return bytes(data)

    def _ending(self) -> str:
        """End the process, and return in words how it ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)
        code = self._process.poll()
        self.end()
        if code is None:
            return "sent an answer that cannot be read"
        return ending_in_words(128 - code if code > 128 else code)


def _start(module: str, policy: Policy, connection: int, leash: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", "torchstone.isolation.confined_process"]
    return subprocess.Popen(
        [*command, str(connection), str(leash), encode(policy).decode(), module],
        env=clean_environment(os.environ),
        pass_fds=(connection, leash),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )


def exit_code_of(wait_status: int) -> int:
    """The exit code that reports how a child ended: its own exit code, or 128 plus the number of a signal."""
    code = os.waitstatus_to_exitcode(wait_status)
    return 128 - code if code < 0 else code
