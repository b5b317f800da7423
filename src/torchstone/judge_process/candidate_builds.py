"""Has a candidate's C++ or CUDA source compiled, and keeps built files for later workers of the same candidate."""

from __future__ import annotations

import secrets
import time
from contextlib import closing
from typing import TYPE_CHECKING

from torchstone import schema
from torchstone.backends.native_source import is_native
from torchstone.judge_process.candidate_failures import CandidateFailedError
from torchstone.judge_process.kept_builds import ROOM_BYTES
from torchstone.protocol.commands import Build, Collect
from torchstone.protocol.replies import Collected, Failed
from torchstone.protocol.shared_memory import HostArena

if TYPE_CHECKING:
    from torchstone.judge_process.candidate_session import CandidateSession

_COLLECT_SECONDS = 30.0
"""Deadline for packing the built files: a copy of 64 MiB takes a tenth of a second."""


def build_source(session: CandidateSession) -> None:
    """Have C++ or CUDA source compiled, once per worker. The build is kept for the case that a later call crashes."""
    origin, worker = session.job.implementation.origin, session.worker
    if not isinstance(origin, schema.SourceFiles) or not is_native(origin.files[0].name) or worker.is_built:
        return
    with session.preparing():
        command = Build(secrets.token_hex(8))
        reply = session.allow(lambda deadline: worker.ask(command, deadline))
        worker.freeze()
        if isinstance(reply, Failed):
            raise CandidateFailedError(reply)
        worker.is_built = True
        keep_build(session, knows_values=False)


def keep_build(session: CandidateSession, *, knows_values: bool) -> None:
    """Take the worker's built files if it was busy for at least WORTH_SECONDS since the stage began or they were taken.

    ``knows_values``: the worker has already been called on values of this job.
    """
    implementation, builds = session.job.implementation, session.resources.builds
    if implementation.package or isinstance(implementation.origin, schema.ImportPath):
        return  # the worker may have built for other candidates
    if not builds.wants(implementation.key, session.clock.busy_seconds):
        return
    session.clock.begin_counting()
    with closing(HostArena(ROOM_BYTES)) as memory:
        command = Collect(secrets.token_hex(8), memory.size_bytes)
        reply = session.worker.ask(command, time.monotonic() + _COLLECT_SECONDS, memory.descriptor)
        session.worker.freeze()
        size_bytes = reply.size_bytes if isinstance(reply, Collected) else 0
        builds.take(implementation.key, memory.descriptor, size_bytes, knows_values=knows_values)
