"""Provides workers: asks the process that forks them (the zygote), and keeps spare workers that are ready at once."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable

import msgspec

from torchstone.errors import InfrastructureError, IsolationUnavailableError
from torchstone.isolation.sandbox import Policy
from torchstone.protocol.commands import Open, Spawn
from torchstone.protocol.json_framing import frame
from torchstone.protocol.replies import Failed
from torchstone.protocol.worker_environment import Preload, start_apart
from torchstone.schema import Holding, IsolationLevel, Layer, Limits, ResultReading, encode
from torchstone.supervisor.pausable_worker import PausableWorker
from torchstone.supervisor.worker_failures import BadReplyError, OverLimitError, OverranError, WorkerEndedError
from torchstone.supervisor.worker_handle import Worker
from torchstone.supervisor.worker_pipes import PIPE_BYTES

_START_SECONDS = 60.0
_SETTLE_SECONDS = 5.0


class DeviceNotOpenedError(Exception):
    """A worker could not open its device."""


class WorkerOptions(msgspec.Struct, frozen=True):
    """What all workers of a pool have in common."""

    device_type: str = "cpu"
    isolation: IsolationLevel = "best"
    limits: Limits = Limits()
    threads: int = 1
    cores: tuple[int, ...] = ()
    judge_cores: tuple[int, ...] = ()
    """Cores of the zygote and the wardens once torch is imported; empty: all. Not of a zygote from the fork server."""
    spares: int = 1
    device_at_start: bool = True
    """False: a worker opens its device only when it is told to."""
    few_queues: bool = False
    preload: Preload = "compiler"
    """What the zygote imports beforehand."""
    results: ResultReading = "read"
    """`copied`: do without reading results in a worker's memory, and without CUDA IPC."""


class Zygote:
    """The process that forks workers (zygote), started when first needed and again if it was killed."""

    def __init__(
        self,
        staging: str,
        device_type: str,
        preload: Preload,
        nursed: socket.socket | None = None,
        cores: tuple[int, ...] = (),
    ) -> None:
        """``nursed``: the control socket of one that the fork server has forked. ``cores``: see ``judge_cores``."""
        self._cores = cores
        self._staging = staging
        self._preload = preload
        self._device_type = device_type
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._nursed = nursed

    def start(self) -> None:
        """Begin starting it; :meth:`spawn` waits until it is there."""
        os.makedirs(self._staging, exist_ok=True)
        self._awaiting_hello = True
        if self._nursed is not None:
            self._control, self._nursed = self._nursed, None
            with contextlib.suppress(ConnectionError):  # then there will be no hello, and the next is our own
                self._control.sendall(frame(self._staging))
            return
        ours, theirs = socket.socketpair()
        self._process = start_apart("torchstone.worker.zygote", theirs, self._staging, self._device_type, self._preload)
        theirs.close()
        self._control = ours

    def spawn(self, policy: Policy) -> PausableWorker:
        """Ask for a worker. Returns at once; the worker reports ready by itself."""
        for attempt in range(3):
            if self._control is None:
                self.start()
            try:
                self._await_hello()
                return self._spawn(policy)
            except (ConnectionError, TimeoutError) as error:
                self.stop()  # killed by someone: a fresh one takes its place
                if attempt == 2:
                    raise InfrastructureError(
                        f"the zygote does not start ({error or type(error).__name__})."
                    ) from error
        raise AssertionError("unreachable")

    def _await_hello(self) -> None:
        assert self._control is not None
        if self._awaiting_hello:
            self._control.settimeout(_START_SECONDS)
            if self._control.recv(1) != b"R":
                raise ConnectionResetError("it ended while importing torch")
            self._awaiting_hello = False
            if self._process is not None and self._cores:
                with contextlib.suppress(ProcessLookupError):  # then it is started again
                    os.sched_setaffinity(self._process.pid, self._cores)

    def _spawn(self, policy: Policy) -> PausableWorker:
        assert self._control is not None
        commands, worker_commands = socket.socketpair()
        replies, worker_replies = os.pipe()
        log, worker_log = os.pipe()
        with contextlib.suppress(PermissionError):  # a user's pipes may be limited; smaller is only slower
            fcntl.fcntl(log, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        status, warden_status = os.pipe()
        warden_leash, leash = os.pipe()
        theirs = [worker_commands.fileno(), worker_replies, worker_log, warden_status, warden_leash]
        try:
            data = frame(Spawn(encode(policy)))
            sent = socket.send_fds(self._control, [data], theirs)
            self._control.sendall(data[sent:])
        except OSError:
            commands.close()
            for descriptor in (replies, log, status, leash):
                os.close(descriptor)
            raise
        finally:
            worker_commands.close()
            for descriptor in theirs[1:]:
                os.close(descriptor)
        return PausableWorker(commands, replies, log, status, leash, policy.limits, policy.cores)

    def stop(self) -> None:
        """Close the control socket; the zygote ends by itself."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None


class WorkerPool:
    """Hands out fresh workers and keeps spares ready behind the caller's back."""

    def __init__(self, options: WorkerOptions, nursed: socket.socket | None = None) -> None:
        self._options = options
        self._folder = tempfile.mkdtemp(prefix="torchstone-")
        os.chmod(self._folder, 0o711)  # a worker of another uid walks through it to its scratch folder
        self._zygote = Zygote(self._folder, options.device_type, options.preload, nursed, options.judge_cores)
        self._spares: deque[PausableWorker] = deque()
        self._access: tuple[Holding, ResultReading] | None = None
        """How the first worker was held and read: all others must be alike."""
        self._policy = Policy(
            level=options.isolation,
            limits=options.limits,
            device_type=options.device_type,
            staging=self._folder,
            cores=options.cores,
            threads=options.threads,
            device_at_start=options.device_at_start,
            few_queues=options.few_queues,
        )
        # What a candidate may take is its user's choice; what torch itself takes (graphs of many calls) is not.
        own_bytes = max(options.limits.memory_bytes, Limits().memory_bytes)
        self._own_limits = msgspec.structs.replace(options.limits, memory_bytes=own_bytes)

    def start(self) -> None:
        """Begin starting the zygote, so that its import of torch overlaps with the caller's own."""
        self._zygote.start()

    def refill(self) -> None:
        """Order spares up to the wanted number; does not wait for them."""
        while len(self._spares) < self._options.spares:
            self._spares.append(self._zygote.spawn(self._policy))

    def take(self, with_device: bool = True) -> PausableWorker:
        """A worker that has seen no candidate, ready to load one. Takes a spare if there is one.

        Without a device: it is to be opened with :func:`open_device`, unless workers open theirs when they start.
        """
        return self._started(self._next_spare, with_device)

    def take_own(self, memory_bytes: int = 0) -> PausableWorker:
        """A worker for torch's own operators, which has memory enough however little candidates are given.

        ``memory_bytes``: at least so much.
        """
        most_bytes = max(self._own_limits.memory_bytes, memory_bytes)
        policy = msgspec.structs.replace(
            self._policy, limits=msgspec.structs.replace(self._own_limits, memory_bytes=most_bytes)
        )
        return self._started(lambda: self._zygote.spawn(policy), with_device=True)

    def _next_spare(self) -> PausableWorker:
        return self._spares.popleft() if self._spares else self._zygote.spawn(self._policy)

    def _started(self, order: Callable[[], PausableWorker], with_device: bool) -> PausableWorker:
        failures: list[str] = []
        for _ in range(3):
            worker = order()
            try:
                worker.wait_ready(time.monotonic() + _START_SECONDS) if not worker.layers else None
                worker.check_silence()
                self._prove(worker)
                if with_device:
                    self.open_device(worker)
            except (WorkerEndedError, OverranError, OverLimitError, DeviceNotOpenedError) as error:
                failures.append(f"{type(error).__name__}: {error}; it printed: {worker.log_tail[-500:]!r}")
                worker.kill()
                continue
            self._check_strict(worker)
            return worker
        raise InfrastructureError(f"no worker could be started: {failures[-1]}")

    def _prove(self, worker: Worker) -> None:
        """That the judge can do to it what it will have to. What it cannot from now on is the candidate's doing."""
        try:
            worker.prove()
        except InfrastructureError:
            worker.kill()
            raise
        worker.results = self._options.results
        if self._options.device_type == "cpu" and worker.results == "read":
            from torchstone.supervisor.result_reading import is_readable  # imports torch, as every user of workers has

            worker.results = "read" if is_readable(worker.pid) else "copied"
        access = worker.holding, worker.results
        self._access = self._access or access
        if access != self._access:  # no candidate may bring the judge to take the weaker way
            worker.kill()
            raise InfrastructureError(
                "the judge may no longer stop or read its workers as it could before. "
                "Allow ptrace for the whole run (in a container: --cap-add SYS_PTRACE)."
            )

    def open_device(self, worker: PausableWorker) -> None:
        """The device of a worker that has been taken without. Takes a fifth of a second on a GPU, one after another."""
        if self._options.device_at_start or self._options.device_type == "cpu":
            return
        reply = worker.ask(Open(secrets.token_hex(8)), time.monotonic() + _START_SECONDS)
        if isinstance(reply, Failed):
            raise DeviceNotOpenedError(reply.message)

    def settle(self) -> None:
        """Wait until ordered spares have started: their start-up would disturb a measurement."""
        until = time.monotonic() + _SETTLE_SECONDS
        for worker in self._spares:
            with contextlib.suppress(OverranError, WorkerEndedError, BadReplyError):
                if not worker.layers:
                    worker.wait_ready(until)

    def _check_strict(self, worker: PausableWorker) -> None:
        lacking = [f"{layer.name}: {layer.detail}" for layer in missing_layers(worker.layers)]
        lacking += ["ptrace, to hold a kernel still"] * (worker.holding == "stopped")
        lacking += ["reading a kernel's results in its memory"] * (worker.results != self._options.results)
        if self._options.isolation == "strict" and lacking:
            worker.kill()
            details = "; ".join(lacking)
            raise IsolationUnavailableError(
                f"--isolation strict: this machine does not offer {details}. "
                "See 'torchstone doctor', or run with --isolation best."
            )

    def close(self) -> None:
        """End every spare, the zygote, and the folder they lived in."""
        for worker in self._spares:
            worker.kill()
        self._spares.clear()
        self._zygote.stop()
        shutil.rmtree(self._folder, ignore_errors=True)


def missing_layers(layers: tuple[Layer, ...]) -> list[Layer]:
    """The layers that are not in force."""
    return [layer for layer in layers if not layer.active]
