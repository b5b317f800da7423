"""Profiles correct attempts with torch's profiler for their feedback: in the sandbox, once for each attempt."""

from __future__ import annotations

import tempfile
import threading
import time
from pathlib import Path

import msgspec

from torchstone.api import as_implementation
from torchstone.atomic_files import write_atomically
from torchstone.executors.devices import find_devices
from torchstone.generation.request import GenerationRequest
from torchstone.generation.run_folder import OperatorFolder, records_of
from torchstone.profiling import KernelOnCase, Subject, profile_sandboxed
from torchstone.runs.folder import read_manifest
from torchstone.schema import Agrees, Case, Implementation, Profile, ProfilerResult, decode, encode, forward_operator
from torchstone.schema.generation import Attempt, Judged
from torchstone.suites import input_bytes

_PROFILE_SECONDS = 120.0
"""Limit for one profile, which starts a worker, imports torch there, and makes a few calls."""


class AttemptProfiler:
    """Profiles attempts one after another. :meth:`profile` may be called from several threads."""

    def __init__(self, request: GenerationRequest, device: str) -> None:
        self._request, self._device = request, device
        self._lock = threading.Lock()

    def profile(self, folder: OperatorFolder, attempt: Attempt, entry: str) -> Profile | None:
        """The profile of a right attempt on its largest timed case, made once. None: no case was timed."""
        path = folder.profile(attempt.number)
        if path.exists():
            return decode(path.read_bytes(), Profile)
        case = _largest_timed(folder.run, attempt)
        if case is None:
            return None
        written = as_implementation(folder.kernel(attempt.number), forward_operator(case.operator), entry)
        kernel = msgspec.structs.replace(written, operator=case.operator)  # the case may be one of the gradient
        with self._lock:
            made = self._new_profile(case, kernel, read_manifest(folder.run).key)
        write_atomically(path, msgspec.json.format(encode(made)) + b"\n")
        return made

    def _new_profile(self, case: Case, kernel: Implementation, manifest_key: str) -> Profile:
        began = time.time_ns()
        with tempfile.TemporaryDirectory(prefix="torchstone-") as scratch:
            subject = Subject(
                KernelOnCase(case, kernel),
                find_devices(self._device)[0],
                Path(scratch),
                threads=self._request.threads,
                isolation=self._request.isolation,
                limits=self._request.limits,
                seconds=_PROFILE_SECONDS,
            )
            result: ProfilerResult = profile_sandboxed(subject)
        return Profile(
            case=case,
            implementation=kernel.reference,
            device=self._device,
            calls=subject.calls,
            warmup_calls=subject.warmup_calls,
            threads=subject.threads,
            isolation=subject.isolation,
            results=(msgspec.structs.replace(result, files=()),),  # the trace itself is not kept
            manifest_key=manifest_key,
            began_unix_ns=began,
            ended_unix_ns=time.time_ns(),
        )


def _largest_timed(run: Path, attempt: Attempt) -> Case | None:
    if not isinstance(attempt.outcome, Judged):
        return None
    records = records_of(run, attempt.outcome.records_file)
    timed = [record.case for record in records if record.case.timed and isinstance(record.verdict, Agrees)]
    return max(timed, key=input_bytes, default=None)
