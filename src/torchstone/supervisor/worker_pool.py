"""Provides workers: requests them from the process that forks them (the zygote), and keeps spare workers ready."""

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
from torchstone.supervisor.worker_failures import BadReplyError, OverLimitError, WorkerEndedError, WorkerTimeoutError
from torchstone.supervisor.worker_handle import Worker
from torchstone.supervisor.worker_pipes import PIPE_BYTES

_START_SECONDS = 60.0
"""Longest time for a zygote or a worker to start, or a worker to open its device."""
_SETTLE_SECONDS = 5.0
"""Longest wait for spare workers to start before a measurement."""


class DeviceNotOpenedError(Exception):
    """A worker could not open its device."""


class WorkerOptions(msgspec.Struct, frozen=True):
    """Options that all workers of a pool share."""

    device_type: str = "cpu"
    isolation: IsolationLevel = "best"
    limits: Limits = Limits()
    threads: int = 1
    cores: tuple[int, ...] = ()
    judge_cores: tuple[int, ...] = ()
    """Cores of the zygote and the wardens once torch is imported; empty: all. Not of a zygote from the fork server."""
    spares: int = 1
    device_at_start: bool = True
    """False: a worker opens its device only on the command ``Open``."""
    few_queues: bool = False
    preload: Preload = "compiler"
    """Modules that the zygote imports before it forks workers."""
    results: ResultReading = "read"
    """`copied`: workers copy their results; the judge neither reads their memory nor uses CUDA IPC."""


class Zygote:
    """Handle on the process that forks workers. It is started when it is first needed, and again if it was killed."""

    def __init__(
        self,
        staging: str,
        device_type: str,
        preload: Preload,
        forked_control: socket.socket | None = None,
        cores: tuple[int, ...] = (),
    ) -> None:
        """``forked_control``: control socket of a zygote of the fork server. ``cores``: see ``judge_cores``."""
        self._cores = cores
        self._staging = staging
        self._preload = preload
        self._device_type = device_type
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._forked_control = forked_control

    def start(self) -> None:
        """Begin starting the zygote; :meth:`spawn` waits until it is ready."""
        os.makedirs(self._staging, exist_ok=True)
        self._awaiting_hello = True
        if self._forked_control is not None:
            self._control, self._forked_control = self._forked_control, None
            with contextlib.suppress(ConnectionError):  # it has ended: spawn() gets no hello, and starts another
                self._control.sendall(frame(self._staging))
            return
        ours, theirs = socket.socketpair()
        self._process = start_apart("torchstone.worker.zygote", theirs, self._staging, self._device_type, self._preload)
        theirs.close()
        self._control = ours

    def spawn(self, policy: Policy) -> PausableWorker:
        """Request a worker. Does not wait until the worker is ready."""
        for attempt in range(3):
            if self._control is None:
                self.start()
            try:
                self._await_hello()
                return self._spawn(policy)
            except (ConnectionError, TimeoutError) as error:
                self.stop()  # it was killed: start another
                if attempt == 2:
                    raise InfrastructureError(
                        f"the zygote does not start ({error or type(error).__name__})."
                    ) from error
        raise AssertionError("unreachable")

    def _await_hello(self) -> None:
        """Wait until the zygote has imported torch, and bind it to its cores."""
        assert self._control is not None
        if self._awaiting_hello:
            self._control.settimeout(_START_SECONDS)
            if self._control.recv(1) != b"R":
                raise ConnectionResetError("it ended while importing torch")
            self._awaiting_hello = False
            if self._process is not None and self._cores:
                with contextlib.suppress(ProcessLookupError):  # it has ended, and is started again
                    os.sched_setaffinity(self._process.pid, self._cores)

    def _spawn(self, policy: Policy) -> PausableWorker:
        assert self._control is not None
        commands, worker_commands = socket.socketpair()
        replies, worker_replies = os.pipe()
        log, worker_log = os.pipe()
        with contextlib.suppress(PermissionError):  # the system may limit a user's pipes; a smaller pipe is only slower
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
    """Provides fresh workers, and keeps spare workers ready."""

    def __init__(self, options: WorkerOptions, forked_control: socket.socket | None = None) -> None:
        self._options = options
        self._folder = tempfile.mkdtemp(prefix="torchstone-")
        os.chmod(self._folder, 0o711)  # a worker with another uid must reach its scratch folder in it
        self._zygote = Zygote(self._folder, options.device_type, options.preload, forked_control, options.judge_cores)
        self._spares: deque[PausableWorker] = deque()
        self._access: tuple[Holding, ResultReading] | None = None
        """How the first worker was frozen and read. All others must be frozen and read in the same way."""
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
        # The user chooses a candidate's memory limit. What torch itself needs (graphs of many calls) is not a choice.
        reference_bytes = max(options.limits.memory_bytes, Limits().memory_bytes)
        self._reference_limits = msgspec.structs.replace(options.limits, memory_bytes=reference_bytes)

    def start(self) -> None:
        """Begin starting the zygote, so that its import of torch overlaps with the caller's own."""
        self._zygote.start()

    def refill(self) -> None:
        """Request spares up to the wanted number; does not wait for them."""
        while len(self._spares) < self._options.spares:
            self._spares.append(self._zygote.spawn(self._policy))

    def take(self, with_device: bool = True) -> PausableWorker:
        """A worker that has loaded no candidate yet: a spare if there is one.

        Unless ``with_device``, its device must be opened with :meth:`open_device`, unless workers do so at their start.
        """
        return self._start_worker(self._next_spare, with_device)

    def take_own(self, memory_bytes: int = 0) -> PausableWorker:
        """A worker for torch's own operators. Its memory limit may be larger than that of candidates.

        ``memory_bytes``: least memory limit.
        """
        most_bytes = max(self._reference_limits.memory_bytes, memory_bytes)
        policy = msgspec.structs.replace(
            self._policy, limits=msgspec.structs.replace(self._reference_limits, memory_bytes=most_bytes)
        )
        return self._start_worker(lambda: self._zygote.spawn(policy), with_device=True)

    def _next_spare(self) -> PausableWorker:
        return self._spares.popleft() if self._spares else self._zygote.spawn(self._policy)

    def _start_worker(self, request: Callable[[], PausableWorker], with_device: bool) -> PausableWorker:
        """Request a worker and wait until it is ready; up to three attempts."""
        failures: list[str] = []
        for _ in range(3):
            worker = request()
            try:
                worker.wait_ready(time.monotonic() + _START_SECONDS) if not worker.layers else None
                worker.check_silence()
                self._check_access(worker)
                if with_device:
                    self.open_device(worker)
            except (WorkerEndedError, WorkerTimeoutError, OverLimitError, DeviceNotOpenedError) as error:
                failures.append(f"{type(error).__name__}: {error}; it printed: {worker.log_tail[-500:]!r}")
                worker.kill()
                continue
            self._check_strict(worker)
            return worker
        raise InfrastructureError(f"no worker could be started: {failures[-1]}")

    def _check_access(self, worker: Worker) -> None:
        """Find out how the judge can freeze and read the worker, and raise unless that is as for the first worker.

        The worker has loaded no candidate yet. So a failure after this is caused by the candidate.
        """
        try:
            worker.check_freezable()
        except InfrastructureError:
            worker.kill()
            raise
        worker.results = self._options.results
        if self._options.device_type == "cpu" and worker.results == "read":
            from torchstone.supervisor.result_reading import is_readable  # imports torch, as every user of workers has

            worker.results = "read" if is_readable(worker.pid) else "copied"
        access = worker.holding, worker.results
        self._access = self._access or access
        if access != self._access:  # a candidate must not make the judge use weaker methods
            worker.kill()
            raise InfrastructureError(
                "the system no longer lets the judge freeze its workers or read their memory. "
                "Allow ptrace for the whole run (in a container: --cap-add SYS_PTRACE)."
            )

    def open_device(self, worker: PausableWorker) -> None:
        """Open a worker's device, unless workers do so at their start. Takes 0.2 s on a GPU, one worker at a time."""
        if self._options.device_at_start or self._options.device_type == "cpu":
            return
        reply = worker.ask(Open(secrets.token_hex(8)), time.monotonic() + _START_SECONDS)
        if isinstance(reply, Failed):
            raise DeviceNotOpenedError(reply.message)

    def settle(self) -> None:
        """Wait until requested spares have started: their start-up would disturb a measurement."""
        until = time.monotonic() + _SETTLE_SECONDS
        for worker in self._spares:
            with contextlib.suppress(WorkerTimeoutError, WorkerEndedError, BadReplyError):
                if not worker.layers:
                    worker.wait_ready(until)

    def _check_strict(self, worker: PausableWorker) -> None:
        """With strict isolation, raise if the sandbox lacks a layer or the judge uses a weaker method."""
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
        """End every spare and the zygote, and remove their folder."""
        for worker in self._spares:
            worker.kill()
        self._spares.clear()
        self._zygote.stop()
        shutil.rmtree(self._folder, ignore_errors=True)


def missing_layers(layers: tuple[Layer, ...]) -> list[Layer]:
    """The layers that are not in force."""
    return [layer for layer in layers if not layer.active]
