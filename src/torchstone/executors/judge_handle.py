"""An executor's handle on one judge process: starts it, sends it jobs, receives records, replaces it.

The session (``local.py``) decides when to do so.
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

from torchstone.atomic_files import cache_folder, kernel_cache_environment
from torchstone.executors.base import ExecutorOptions
from torchstone.executors.devices import Device
from torchstone.executors.worker_setup_for_jobs import WorkerSetup
from torchstone.judge_process.process import Announcement, JudgeSettings, Opened, receive, send
from torchstone.protocol.worker_environment import FEW_QUEUES, clean_environment
from torchstone.schema import Job, Record, decode
from torchstone.supervisor.zygote_fork_server import ZygoteForkServer

_STOP_SECONDS = 10.0
"""Longest wait for a judge to end by itself; then it is killed."""
_SILENCE_SECONDS = 600.0
"""Time without a message, besides the job's deadlines, after which a judge counts as stuck. A working judge sends
messages several times a minute, except during its own long computations."""


def where_on(device: Device, options: ExecutorOptions) -> dict[str, str]:
    """The fields of a record that name the machine and the device."""
    return {"node": options.node or platform.node(), "device_uuid": device.uuid or "", "device_model": device.model}


_MALLOC_SETTINGS = {
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=268435456:"
    "glibc.malloc.trim_threshold=1073741824:glibc.malloc.top_pad=67108864"
}
"""Variables that make malloc keep up to 1 GiB of freed memory and use huge pages, for a judge's own arithmetic. New
pages take several times as long as the arithmetic on them. Workers are started without these variables."""


def _judge_environment(device: Device) -> dict[str, str]:
    usual = {**clean_environment(os.environ), **device.environment(), **FEW_QUEUES, **kernel_cache_environment()}
    return {**_MALLOC_SETTINGS, **usual}


class JudgeProcess:
    """One judge: its process, its socket, and its current job."""

    connection: socket.socket

    def __init__(
        self,
        device: Device,
        options: ExecutorOptions,
        place: int = 0,
        places: int = 1,
    ) -> None:
        """``place``: number of this judge among the ``places`` judges of the device."""
        self.device = device
        self._options = options
        self._place, self._places = place, places
        self.worker_setup = WorkerSetup()
        """The set-up of workers that the judge process was started with."""
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._lifeline: int | None = None
        self.opened = False
        self.job: Job | None = None
        self.lost = 0
        """Number of judges that have died on the current job."""
        self.failed_starts = 0
        self.rests_until = 0.0
        """Time of the monotonic clock before which the judge is not started again, after several failed starts."""
        self.unjudged_in_a_row: set[str] = set()
        """Implementations whose jobs ended unjudged, one after another. A set, because one implementation that can kill
        the judge must not end the run with three of its cases."""
        self.last_implementation: str | None = None
        self.cases: set[str] = set()
        """Keys of the cases of all jobs that the judge process was sent."""

    def start(self, setup: WorkerSetup | None = None, fork_server: ZygoteForkServer | None = None) -> None:
        """Start the judge process. It sends Opened once its device is open. A fork server, if any, forks its zygote."""
        self.worker_setup = setup or WorkerSetup()
        self.connection, theirs = socket.socketpair()
        lifeline, self._lifeline = os.pipe()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        variables = {**self.device.environment(), **kernel_cache_environment()}
        zygote = None if fork_server is None else fork_server.order(variables)
        passed = [theirs.fileno(), lifeline, *([] if zygote is None else [zygote.fileno()])]
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "torchstone.judge_process.process", *map(str, passed)],
            env=_judge_environment(self.device),
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
        self._last_message_at, self._stuck = time.monotonic(), False
        options = self._options
        ceilings = cache_folder("ceilings")  # the judge's environment has no HOME, so it gets the path
        settings = JudgeSettings(
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
        send(self.connection, settings)

    def receive(self) -> Announcement | None:
        """Receive the judge's next message; None: the judge has ended."""
        try:
            data = receive(self.connection)
        except ConnectionError:
            data = None
        if data is None:
            return None
        self._last_message_at = time.monotonic()
        announcement: Announcement = decode(data, Announcement)  # type: ignore[arg-type]
        if isinstance(announcement, Opened):
            self.opened, self.failed_starts = True, 0
        return announcement

    def give(self, job: Job, lost: int) -> None:
        """Send a job. If the judge has ended, the next :meth:`receive` returns None."""
        self.job, self.lost, self.last_implementation = job, lost, job.implementation.key
        self.cases.add(job.case.key)
        self._last_message_at = time.monotonic()
        with contextlib.suppress(ConnectionError):
            send(self.connection, job)

    def end_if_stuck(self) -> None:
        """Kill the judge if it has a job and has sent nothing for too long. The next :meth:`receive` then returns None.

        No stage of a candidate may take longer than twice the longest of its deadlines.
        """
        if self._process is None or self.job is None or self._stuck:
            return
        longest = max(msgspec.structs.astuple(self.job.deadlines))
        if time.monotonic() - self._last_message_at > _SILENCE_SECONDS + 2 * longest:
            self._stuck = True
            self._process.kill()

    def finish(self, record: Record) -> Record:
        """End the current job; return its record with lost attempts and device filled in."""
        lost, self.job, self.unjudged_in_a_row = self.lost, None, set()
        return msgspec.structs.replace(record, attempts=record.attempts + lost, **where_on(self.device, self._options))

    def exit_message(self) -> str:
        """One line with the judge process's exit code and the end of its output."""
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
        """Whether the judge was started, and :meth:`close_lifeline` was not called since."""
        return self._lifeline is not None

    def close_lifeline(self) -> None:
        """Close the judge process's lifeline and socket. Then the process ends, and all its workers with it."""
        if self._process is not None and self._lifeline is not None:
            self.opened = False
            self.connection.close()
            os.close(self._lifeline)
            self._lifeline = None

    def abandon(self) -> None:
        """Close the inherited descriptors in a forked child. The judge still belongs to the parent."""
        self.close_lifeline()
        self._process = None

    def stop(self) -> None:
        """Close the judge process's lifeline and wait until the process ends. Kill it if it does not end in time."""
        if self._process is None:
            return
        self.close_lifeline()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._log is not None:
            self._log.close()
        self._process = None
