"""A sweep's handle on the process that measures points (operation, size): starts it, asks it, explains why it died."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from torchstone.errors import InfrastructureError, UsageError
from torchstone.harness.fork_server import ForkServer
from torchstone.processes import BoundedLog, ChildEndedError, ChildProcess, ReplyTimeoutError
from torchstone.schema.sweep import SweepPoint, SweepRecord
from torchstone.sweeps import rows
from torchstone.sweeps.last_step_file import read_last_step
from torchstone.sweeps.process_messages import Broken, Failed, Measure, MeasurementReply, Open, Opened, Reply

SESSION = "torchstone.sweeps.point_session:PointSession"
OPEN_SECONDS = 120.0
POINT_SECONDS = 120.0
"""Longest time of one point, which usually takes one or two seconds."""
COMPILE_SECONDS = 300.0
"""Additional time if torch's compiler is used."""
_LOG_CHARACTERS = 200


def _ending_reason(ending: str) -> str:
    if "SIGKILL" in ending:
        return f"{rows.OUT_OF_MEMORY}: the process {ending}, as the system does to a process that takes too much memory"
    return f"{rows.CRASHED}: the process {ending}"


class Lost(NamedTuple):
    """A point that was not measured because something went wrong in the process."""

    implementation: str
    """The implementation that was at work. Empty: unknown."""
    reason: str
    died: bool = True
    """Whether the process ended. False: it reported an exception, which concerns only this point."""


class PointProcess:
    """Handle on the process that has the device. A process that died is replaced at the next request."""

    def __init__(self, opening: Open, compiles: bool) -> None:
        self._opening = opening
        self._compiles = compiles
        self._server = ForkServer(opening.device_type == "cuda", profiles=compiles, session=SESSION)
        self._child: ChildProcess | None = None

    def open(self) -> Opened:
        """Start a process and have it open the device."""
        self._child = self._server.start_side(BoundedLog())
        try:
            reply: Reply = self._child.ask(self._opening, Reply, time.monotonic() + OPEN_SECONDS)  # type: ignore[arg-type]
        except (ChildEndedError, ReplyTimeoutError) as error:
            told = str(error) or f"did not answer within {OPEN_SECONDS:.0f} s"
            raise InfrastructureError(f"the process that measures {told}{self._last_printed_line()}.") from error
        if isinstance(reply, Failed):
            raise (UsageError if reply.is_usage else InfrastructureError)(reply.message)
        assert isinstance(reply, Opened)
        return reply

    def measure(self, point: SweepPoint, implementations: Sequence[str]) -> SweepRecord | Lost:
        """The record of a point, or what went wrong.

        After a process died, was late or lost the device, the next request starts a new one.
        """
        if self._child is None:
            self.open()
        assert self._child is not None
        seconds = POINT_SECONDS + (COMPILE_SECONDS if "Compile" in implementations else 0.0)
        try:
            request = Measure(point, tuple(implementations))
            reply: Reply = self._child.ask(request, Reply, time.monotonic() + seconds)  # type: ignore[arg-type]
        except ChildEndedError as error:
            return self._lost(f"{_ending_reason(str(error))}{self._last_printed_line()}")
        except ReplyTimeoutError:
            return self._lost(f"{rows.TIMED_OUT}: no result within {seconds:.0f} s")
        if isinstance(reply, MeasurementReply):
            return reply.record
        if isinstance(reply, Broken):
            self.end_child()
            return Lost(reply.implementation, f"{rows.CRASHED}: {reply.reason}")
        assert isinstance(reply, Failed)
        return Lost("", f"{rows.RAISED}: {reply.message}", died=False)

    def close(self) -> None:
        """End the process and the fork server."""
        self.end_child()
        self._server.stop()

    def end_child(self) -> None:
        """End the process. The next request starts another."""
        if self._child is not None:
            self._child.end()
            self._child = None

    def _lost(self, reason: str) -> Lost:
        self.end_child()
        return Lost(read_last_step(Path(self._opening.last_step_file)), reason)

    def _last_printed_line(self) -> str:
        """Text with the last line that the process printed."""
        lines = (
            [] if self._child is None else [line.strip() for line in self._child.log.tail.splitlines() if line.strip()]
        )
        return f" after printing: {lines[-1][:_LOG_CHARACTERS]}" if lines else ""
