"""The judge process: trusted, owns or shares a device, receives jobs on a socket and sends records.

``python -m torchstone.judge_process.process SOCKET LIFELINE [ZYGOTE]`` is started by an executor, which first sends it
:class:`JudgeSettings`. The zygote is the process that forks its workers: without a control socket of one, the judge
starts one. When the lifeline closes (the executor is gone, perhaps killed) the judge ends at once, whatever it is
doing, and with it every worker.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from torchstone.errors import DeviceUnavailableError, IsolationUnavailableError, TorchstoneError
from torchstone.judge_process.measuring_lane import MeasuringLane
from torchstone.processes.memory_ledger import MemoryLedger, device_ledger, host_ledger
from torchstone.protocol.json_framing import HEADER_BYTES, frame, frame_length
from torchstone.protocol.worker_environment import Preload
from torchstone.schema import IsolationLevel, Job, Limits, Record, ResultReading, decode
from torchstone.supervisor.worker_pool import WorkerOptions, WorkerPool

if TYPE_CHECKING:
    import torch

    from torchstone.judge_process.resources import JudgeResources

_ALIVE_SECONDS = 20.0
"""Time between two messages that the judge is alive."""
_KEPT_MEMORY_POLL_SECONDS = 0.1
"""Time between two tests of an idle judge whether another process waits for the memory that it keeps."""


class JudgeSettings(msgspec.Struct, frozen=True):
    """Settings of a judge; the first message that it gets."""

    device_type: str
    device_label: str
    """The device in records: ``cuda:3``, although the judge itself sees one device only."""
    device_name: str
    """Names the lane; the same in every process that uses this device."""
    isolation: IsolationLevel
    limits: Limits
    threads: int
    manifest_key: str
    ceilings_folder: str | None = None
    """Folder that keeps measured ceilings of the device from run to run; None: they are not kept."""
    place: int = 0
    places: int = 1
    """How many judges the run has on this device; ``place`` is the number of this one."""
    preload: Preload = "compiler"
    few_queues: bool = False
    """Whether workers open CUDA with few hardware queues: quicker, but less accurate for kernels with many streams."""
    slot: int = 0
    slots: int = 1
    """CPU: how many slots share the cores of the machine; ``slot`` is the number of this judge's."""
    results: ResultReading = "read"
    """`copied`: workers copy their results out; their memory is not read, and CUDA IPC is not used."""


class Opened(msgspec.Struct, frozen=True, tag="opened"):
    """Message to the executor, before any job: the device is open, and worker processes can be started."""


class Judged(msgspec.Struct, frozen=True, tag="judged"):
    """Message to the executor: the record of a job."""

    record: Record


class Closed(msgspec.Struct, frozen=True, tag="closed"):
    """Message to the executor: the judge cannot go on, and ends."""

    error: str
    """Name of the error class, see ``errors.py``."""
    message: str


class Alive(msgspec.Struct, frozen=True, tag="alive"):
    """Message to the executor: the judge works, or waits for the lane or for memory. One that hangs sends none."""


Announcement = Opened | Judged | Closed | Alive


def send(connection: socket.socket, message: object) -> None:
    """Send one framed message."""
    connection.sendall(frame(message))


def receive(connection: socket.socket) -> bytes | None:
    """Receive one framed message; None: the socket was closed. Both ends of it are trusted."""
    header = _receive_exactly(connection, HEADER_BYTES)
    return None if header is None else _receive_exactly(connection, frame_length(header))


def _receive_exactly(connection: socket.socket, count: int) -> bytes | None:
    parts: list[bytes] = []
    while count:
        part = connection.recv(min(count, 1 << 20))
        if not part:
            return None
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def main() -> None:
    """Serve until the socket closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command line handles Ctrl-C and closes the socket
    connection = socket.socket(fileno=int(sys.argv[1]))
    threading.Thread(target=_exit_with_lifeline, args=(int(sys.argv[2]),), daemon=True).start()
    data = receive(connection)
    if data is None:
        return
    settings = decode(data, JudgeSettings)
    options = _worker_options(settings)
    pool = WorkerPool(options, socket.socket(fileno=int(sys.argv[3])) if len(sys.argv) > 3 else None)
    lane = MeasuringLane(settings.device_name)
    try:
        with ExitStack() as starting:
            if settings.device_type == "cpu":  # importing torch, twice, takes the cores that others measure on
                starting.enter_context(lane.shared())
            pool.start()  # its import of torch runs beside ours
            resources = _open_resources(settings, pool, lane, options)
        _serve(connection, settings, resources)
    except TorchstoneError as error:
        send(connection, Closed(type(error).__name__, str(error)))
    except (BrokenPipeError, ConnectionResetError):
        pass  # the executor is gone
    finally:
        pool.close()


def _exit_with_lifeline(lifeline: int) -> None:
    os.read(lifeline, 1)  # returns when the other end is closed; nothing is ever written
    os._exit(0)


def _worker_options(settings: JudgeSettings) -> WorkerOptions:
    """The options of this judge's workers. On the CPU they get cores of their own; the judges keep the others."""
    workers: tuple[int, ...] = ()
    own: tuple[int, ...] = ()
    if settings.device_type == "cpu":
        available = tuple(sorted(os.sched_getaffinity(0)))
        place = settings.slot * settings.places + settings.place
        workers, own = share_cores(available, settings.threads, place, settings.slots * settings.places)
    # With several judges, a spare worker must not open the device at its start: another judge may measure then.
    alone = settings.places == 1
    return WorkerOptions(
        settings.device_type,
        settings.isolation,
        settings.limits,
        settings.threads,
        workers,
        judge_cores=own,
        device_at_start=alone,
        few_queues=settings.few_queues,
        preload=settings.preload,
        results=settings.results,
    )


def share_cores(
    available: tuple[int, ...], threads: int, place: int, places: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The cores of a judge's workers, which no other judge uses, and the cores of the judge itself.

    All judges share the cores that the workers leave. If there are none, a judge uses the cores of the other judges'
    workers. If there are too few cores for all workers, some workers share one.
    """
    count = len(available)
    end = count - place * threads
    if end < threads:
        end = count - (place % max(1, count // threads)) * threads
    workers = available[max(0, end - threads) : end]
    left = available[: max(0, count - places * threads)]
    own = left or tuple(core for core in available if core not in workers) or available
    return workers, own


def _open_resources(
    settings: JudgeSettings, pool: WorkerPool, lane: MeasuringLane, options: WorkerOptions
) -> JudgeResources:
    import torch

    from torchstone import model_operators
    from torchstone.judge_process.resources import JudgeResources
    from torchstone.measuring.ceilings import DeviceCeilings
    from torchstone.measuring.device_state import DeviceProbe
    from torchstone.measuring.kept_ceilings import KeptCeilings

    if options.judge_cores:  # not earlier: judge and zygote import torch at the same time
        os.sched_setaffinity(0, options.judge_cores)
    cores = options.cores
    torch.set_num_threads(settings.threads)
    with lane.shared():
        device = _open_device(settings)
    folder = Path(settings.ceilings_folder) if settings.ceilings_folder else None
    kept = KeptCeilings(folder, settings.device_name, settings.threads, cores, str(torch.__version__))
    ceilings = DeviceCeilings(device, settings.threads, cores, kept)
    probe = DeviceProbe(settings.device_type, settings.device_name, cores)
    ledger = _ledger_of(settings, device)
    resources = JudgeResources(pool, lane, device, settings.threads, probe, ceilings, settings.places, ledger)
    model_operators.set_model_host(resources.models)
    pool.refill()
    if settings.places > 1:
        pool.settle()
    return resources


def _ledger_of(settings: JudgeSettings, device: torch.device) -> MemoryLedger:
    import torch

    if device.type == "cpu":
        return host_ledger()
    return device_ledger(settings.device_name, int(torch.cuda.mem_get_info(device)[1]))


def _serve(connection: socket.socket, settings: JudgeSettings, resources: JudgeResources) -> None:
    from torchstone.judge_process.job_retries import judge

    sending = threading.Lock()
    send(connection, Opened())
    threading.Thread(target=_send_alive, args=(connection, resources, sending), daemon=True).start()
    try:
        while (data := _next_message(connection, resources)) is not None:
            job = decode(data, Job)
            record = judge(job, resources, settings.device_label, settings.manifest_key, settings.isolation)
            with sending:
                send(connection, Judged(record))
    finally:
        resources.close()


def _next_message(connection: socket.socket, resources: JudgeResources) -> bytes | None:
    """The next message; None: the socket was closed. Gives kept memory back while another process waits for it."""
    while resources.memory.is_kept and not select.select([connection], [], [], _KEPT_MEMORY_POLL_SECONDS)[0]:
        resources.memory.give_back_if_wanted()
    return receive(connection)


def _send_alive(connection: socket.socket, resources: JudgeResources, sending: threading.Lock) -> None:
    """Send :class:`Alive` again and again, if the judge waits or has sent a command to a worker since the last time."""
    before = -1
    with contextlib.suppress(OSError):
        while True:
            time.sleep(_ALIVE_SECONDS)
            if resources.waits or resources.signs_of_life != before:
                before = resources.signs_of_life
                with sending:
                    send(connection, Alive())


def _open_device(settings: JudgeSettings) -> torch.device:
    import torch

    if settings.device_type == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise DeviceUnavailableError(
            f"torch {torch.__version__} cannot use {settings.device_label}. "
            "Install a CUDA build of torch, or run with --device cpu."
        )
    device = torch.device("cuda", 0)
    torch.zeros(1, device=device)
    _require_sharing(settings, device)
    return device


def _require_sharing(settings: JudgeSettings, device: torch.device) -> None:
    """Raise if isolation is strict but results cannot be read in workers' memory. The device must be open."""
    from torchstone.protocol.shared_memory import can_share

    if settings.isolation == "strict" and settings.results == "read" and not can_share(device):
        raise IsolationUnavailableError(
            "--isolation strict: this machine does not let processes share device memory (CUDA IPC), so results cannot "
            "be read in a kernel's memory. Allow it (in a container: --ipc=host), or run with --isolation best."
        )


if __name__ == "__main__":
    main()
