"""An executor's handle on one judge process: starts it, sends it jobs, receives records, replaces it.

Separate from the loop that feeds judges, which decides when.
"""

from __future__ import annotations

import contextlib
import os
import platform
import socket
import subprocess
import sys
import tempfile
import time
from typing import IO

import msgspec

from torchstone.atomic_files import cache_folder, keeps_kernels_of_torch
from torchstone.executors.base import ExecutorOptions
from torchstone.executors.devices import Device
from torchstone.executors.worker_setup_for_jobs import WorkerSetup
from torchstone.judge_process.process import Announcement, JudgeSettings, Opened, receive, send
from torchstone.protocol.worker_environment import FEW_QUEUES, clean_environment
from torchstone.schema import Job, Record, decode
from torchstone.supervisor.zygote_fork_server import ZygoteForkServer

_STOP_SECONDS = 10.0
_SILENCE_SECONDS = 600.0
"""A judge at work says so several times a minute, but for its own long computations."""


def where_on(device: Device, options: ExecutorOptions) -> dict[str, str]:
    """The fields of a record that name the machine and the device."""
    return {"node": options.node or platform.node(), "device_uuid": device.uuid or "", "device_model": device.model}


_KEEPS_MEMORY = {
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=268435456:"
    "glibc.malloc.trim_threshold=1073741824:glibc.malloc.top_pad=67108864"
}
"""For a judge's own arithmetic: to provide fresh pages takes several times as long as to compute what goes into them.
Memory that is freed is kept, up to 1 GiB, and huge pages are used. Workers are not started with this."""


def _judges_environment(device: Device) -> dict[str, str]:
    usual = {**clean_environment(os.environ), **device.environment(), **FEW_QUEUES, **keeps_kernels_of_torch()}
    return {**_KEEPS_MEMORY, **usual}


class JudgeProcess:
    """One judge: its process, its socket, the job it has."""

    connection: socket.socket

    def __init__(
        self,
        device: Device,
        options: ExecutorOptions,
        place: int = 0,
        places: int = 1,
    ) -> None:
        """The one at this place among so many of the same device."""
        self.device = device
        self._options = options
        self._place, self._places = place, places
        self.worker_setup = WorkerSetup()
        """What its process was set up for."""
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._lifeline: int | None = None
        self.opened = False
        self.job: Job | None = None
        self.lost = 0
        """Judges that died on the job in hand."""
        self.failed_starts = 0
        self.rests_until = 0.0
        """It did not start again and again: before this time of the monotonic clock it is not tried."""
        self.unjudged_in_a_row: set[str] = set()
        """Implementations: one that can kill the judge must not end the run with three of its cases."""
        self.last_implementation: str | None = None
        self.cases: set[str] = set()
        """That its process has had a job of."""

    def start(self, setup: WorkerSetup | None = None, fork_server: ZygoteForkServer | None = None) -> None:
        """Start it; it announces itself when its device is open. A fork server forks its zygote; else it starts one."""
        self.worker_setup = setup or WorkerSetup()
        self.connection, theirs = socket.socketpair()
        lifeline, self._lifeline = os.pipe()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        variables = {**self.device.environment(), **keeps_kernels_of_torch()}
        zygote = None if fork_server is None else fork_server.order(variables)
        passed = [theirs.fileno(), lifeline, *([] if zygote is None else [zygote.fileno()])]
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "torchstone.judge_process.process", *map(str, passed)],
            env=_judges_environment(self.device),
            pass_fds=passed,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )
        theirs.close()
        os.close(lifeline)
        if zygote is not None:
            zygote.close()
        self.opened, self.job, self.lost = False, None, 0
        self.cases = set()
        self._heard, self._stuck = time.monotonic(), False
        options = self._options
        ceilings = cache_folder("ceilings")  # told to the judge, whose own environment knows no home
        charge = JudgeSettings(
            device_type=self.device.kind,
            device_label=self.device.label,
            device_name=self.device.name,
            isolation=options.isolation,
            limits=options.limits,
            threads=options.threads,
            manifest_key=options.manifest_key,
            ceilings_folder=None if ceilings is None else str(ceilings),
            place=self._place,
            places=self._places,
            preload=self.worker_setup.preload,
            few_queues=self.worker_setup.few_queues,
            slot=self.device.slot,
            slots=self.device.slots,
            results=options.results,
        )
        send(self.connection, charge)

    def hear(self) -> Announcement | None:
        """What the judge says; None if it is gone."""
        try:
            data = receive(self.connection)
        except ConnectionError:
            data = None
        if data is None:
            return None
        self._heard = time.monotonic()
        announcement: Announcement = decode(data, Announcement)  # type: ignore[arg-type]
        if isinstance(announcement, Opened):
            self.opened, self.failed_starts = True, 0
        return announcement

    def give(self, job: Job, lost: int) -> None:
        """Hand over a job. If the judge is gone the next :meth:`hear` says so."""
        self.job, self.lost, self.last_implementation = job, lost, job.implementation.key
        self.cases.add(job.case.key)
        self._heard = time.monotonic()
        with contextlib.suppress(ConnectionError):
            send(self.connection, job)

    def end_if_stuck(self) -> None:
        """Kill one that has a job and has been silent for too long; then the next :meth:`hear` says that it is gone.

        No stage of a candidate may take longer than twice the longest of its deadlines.
        """
        if self._process is None or self.job is None or self._stuck:
            return
        longest = max(msgspec.structs.astuple(self.job.deadlines))
        if time.monotonic() - self._heard > _SILENCE_SECONDS + 2 * longest:
            self._stuck = True
            self._process.kill()

    def finish(self, record: Record) -> Record:
        """Take the record of the job in hand."""
        lost, self.job, self.unjudged_in_a_row = self.lost, None, set()
        return msgspec.structs.replace(record, attempts=record.attempts + lost, **where_on(self.device, self._options))

    def last_words(self) -> str:
        """How it ended and the end of what it printed, in one line."""
        assert self._process is not None
        assert self._log is not None
        try:
            code = self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            code = None
        self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, self._log.tell() - 500))
        text = " ".join(self._log.read().decode("utf-8", "replace").split())
        stuck = "stuck, killed; " if self._stuck else ""
        return f"{stuck}exit code {code}; it printed: {text or 'nothing'}"

    @property
    def is_held(self) -> bool:
        """Whether it has been started, and not been let go since."""
        return self._lifeline is not None

    def let_go(self) -> None:
        """Close its socket and lifeline: it ends, and all its workers with it."""
        if self._process is not None and self._lifeline is not None:
            self.opened = False
            self.connection.close()
            os.close(self._lifeline)
            self._lifeline = None

    def abandon(self) -> None:
        """In a forked child: close what was inherited. The judge belongs to the parent."""
        self.let_go()
        self._process = None

    def stop(self) -> None:
        """Let go of it and wait until it has ended; if it does not, it is killed."""
        if self._process is None:
            return
        self.let_go()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._log is not None:
            self._log.close()
        self._process = None
