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

_LIFE_SECONDS = 20.0
_KEEPING_SECONDS = 0.1
"""Between two looks of an idle judge whether somebody waits for the memory that it keeps."""


class JudgeSettings(msgspec.Struct, frozen=True):
    """What a judge is set up with."""

    device_type: str
    device_label: str
    """As records name it: ``cuda:3``, although the judge itself sees its device alone."""
    device_name: str
    """The same for every process that uses this device: the name of its lane."""
    isolation: IsolationLevel
    limits: Limits
    threads: int
    manifest_key: str
    ceilings_folder: str | None = None
    """Where measured ceilings of the device are kept from run to run; None: nowhere."""
    place: int = 0
    places: int = 1
    """Which of how many judges of the same device, in the same run, this one is."""
    preload: Preload = "compiler"
    few_queues: bool = False
    """Whether workers open their device with few queues for work: quicker, and less true of who uses many streams."""
    slot: int = 0
    slots: int = 1
    """CPU: which of how many devices this one is that share the cores of the machine."""
    results: ResultReading = "read"
    """`copied`: do without reading results in the memory of workers, and without CUDA IPC."""


class Opened(msgspec.Struct, frozen=True, tag="opened"):
    """The device works and a worker could be started."""


class Judged(msgspec.Struct, frozen=True, tag="judged"):
    record: Record


class Closed(msgspec.Struct, frozen=True, tag="closed"):
    """The judge cannot go on."""

    error: str
    """Name of the error class, see ``errors.py``."""
    message: str


class Alive(msgspec.Struct, frozen=True, tag="alive"):
    """The judge goes on with its job, or waits for its lane or for memory. One that is stuck does not say so."""


Announcement = Opened | Judged | Closed | Alive


def send(connection: socket.socket, message: object) -> None:
    """One framed message."""
    connection.sendall(frame(message))


def receive(connection: socket.socket) -> bytes | None:
    """One framed message; None at the end. Both ends of this socket are trusted."""
    header = _exactly(connection, HEADER_BYTES)
    return None if header is None else _exactly(connection, frame_length(header))


def _exactly(connection: socket.socket, count: int) -> bytes | None:
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
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the command line's to handle; it closes the socket
    connection = socket.socket(fileno=int(sys.argv[1]))
    threading.Thread(target=_end_with, args=(int(sys.argv[2]),), daemon=True).start()
    data = receive(connection)
    if data is None:
        return
    charge = decode(data, JudgeSettings)
    options = _worker_options(charge)
    pool = WorkerPool(options, socket.socket(fileno=int(sys.argv[3])) if len(sys.argv) > 3 else None)
    lane = MeasuringLane(charge.device_name)
    try:
        with ExitStack() as starting:
            if charge.device_type == "cpu":  # importing torch, twice, is work for the device itself
                starting.enter_context(lane.shared())
            pool.start()  # its import of torch runs beside ours
            room = _open(charge, pool, lane, options)
        _serve(connection, charge, room)
    except TorchstoneError as error:
        send(connection, Closed(type(error).__name__, str(error)))
    except (BrokenPipeError, ConnectionResetError):
        pass  # nobody is listening any more
    finally:
        pool.close()


def _end_with(lifeline: int) -> None:
    os.read(lifeline, 1)  # returns when the other end is closed; nothing is ever written
    os._exit(0)


def _worker_options(charge: JudgeSettings) -> WorkerOptions:
    """On the CPU candidate and reference get cores of their own, the judges keep the others."""
    workers: tuple[int, ...] = ()
    own: tuple[int, ...] = ()
    if charge.device_type == "cpu":
        available = tuple(sorted(os.sched_getaffinity(0)))
        place = charge.slot * charge.places + charge.place
        workers, own = share_cores(available, charge.threads, place, charge.slots * charge.places)
    # Spares that open a device whenever they start would do so while another judge measures.
    alone = charge.places == 1
    return WorkerOptions(
        charge.device_type,
        charge.isolation,
        charge.limits,
        charge.threads,
        workers,
        judge_cores=own,
        device_at_start=alone,
        few_queues=charge.few_queues,
        preload=charge.preload,
        results=charge.results,
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


def _open(charge: JudgeSettings, pool: WorkerPool, lane: MeasuringLane, options: WorkerOptions) -> JudgeResources:
    import torch

    from torchstone import model_operators
    from torchstone.judge_process.resources import JudgeResources
    from torchstone.measuring.ceilings import DeviceCeilings
    from torchstone.measuring.device_state import DeviceProbe
    from torchstone.measuring.kept_ceilings import KeptCeilings

    if options.judge_cores:  # not before: judge and zygote import torch side by side
        os.sched_setaffinity(0, options.judge_cores)
    cores = options.cores
    torch.set_num_threads(charge.threads)
    with lane.shared():
        device = _open_device(charge)
    folder = Path(charge.ceilings_folder) if charge.ceilings_folder else None
    kept = KeptCeilings(folder, charge.device_name, charge.threads, cores, str(torch.__version__))
    ceilings = DeviceCeilings(device, charge.threads, cores, kept)
    probe = DeviceProbe(charge.device_type, charge.device_name, cores)
    ledger = _ledger_of(charge, device)
    room = JudgeResources(pool, lane, device, charge.threads, probe, ceilings, charge.places, ledger)
    model_operators.run_elsewhere(room.models)
    pool.refill()
    if charge.places > 1:
        pool.settle()
    return room


def _ledger_of(charge: JudgeSettings, device: torch.device) -> MemoryLedger:
    import torch

    if device.type == "cpu":
        return host_ledger()
    return device_ledger(charge.device_name, int(torch.cuda.mem_get_info(device)[1]))


def _serve(connection: socket.socket, charge: JudgeSettings, room: JudgeResources) -> None:
    from torchstone.judge_process.job_retries import judge

    speaking = threading.Lock()
    send(connection, Opened())
    threading.Thread(target=_tell_life, args=(connection, room, speaking), daemon=True).start()
    try:
        while (data := _next_message(connection, room)) is not None:
            job = decode(data, Job)
            record = judge(job, room, charge.device_label, charge.manifest_key, charge.isolation)
            with speaking:
                send(connection, Judged(record))
    finally:
        room.close()


def _next_message(connection: socket.socket, room: JudgeResources) -> bytes | None:
    """None at the end. Meanwhile kept memory is given back when another process waits for it."""
    while room.memory.is_kept and not select.select([connection], [], [], _KEEPING_SECONDS)[0]:
        room.memory.give_back_if_wanted()
    return receive(connection)


def _tell_life(connection: socket.socket, room: JudgeResources, speaking: threading.Lock) -> None:
    """Say now and then that the job goes on, if the thread that judges has done anything since."""
    before = -1
    with contextlib.suppress(OSError):
        while True:
            time.sleep(_LIFE_SECONDS)
            if room.waits or room.signs_of_life != before:
                before = room.signs_of_life
                with speaking:
                    send(connection, Alive())


def _open_device(charge: JudgeSettings) -> torch.device:
    import torch

    if charge.device_type == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise DeviceUnavailableError(
            f"torch {torch.__version__} cannot use {charge.device_label}. "
            "Install a CUDA build of torch, or run with --device cpu."
        )
    device = torch.device("cuda", 0)
    torch.zeros(1, device=device)
    _require_sharing(charge, device)
    return device


def _require_sharing(charge: JudgeSettings, device: torch.device) -> None:
    """Raise if results would be copied where the user wants every protection. The device must be open."""
    from torchstone.protocol.shared_memory import can_share

    if charge.isolation == "strict" and charge.results == "read" and not can_share(device):
        raise IsolationUnavailableError(
            "--isolation strict: this machine does not let processes share device memory (CUDA IPC), so results cannot "
            "be read in a kernel's memory. Allow it (in a container: --ipc=host), or run with --isolation best."
        )


if __name__ == "__main__":
    main()
