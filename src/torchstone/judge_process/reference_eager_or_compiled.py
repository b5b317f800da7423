"""Chooses the reference that is timed, eager PyTorch or ``torch.compile``, and compiles it before it is timed.

Results are always compared with eager PyTorch. A case that the compiler refuses cannot be timed.
"""

from __future__ import annotations

import secrets
import time

import msgspec

from torchstone import schema
from torchstone.backends import BackendOptions
from torchstone.backends.torch_compile import CompileBackend
from torchstone.judge_process.bound_worker import BoundWorker
from torchstone.judge_process.candidate_failures import CandidateFailedError
from torchstone.judge_process.candidate_session import CandidateSession
from torchstone.judging import ReferenceFailure, draw_calls


def baseline_of(job: schema.Job) -> schema.Implementation:
    """The implementation that is timed as the reference of a job."""
    eager = schema.torchs_own(job.case)
    if job.baseline == "eager":
        return eager
    compiled = CompileBackend(BackendOptions()).implementation(schema.forward_operator(job.case.operator))
    assert compiled is not None
    if job.case.model is not None:
        assert isinstance(compiled.origin, schema.SourceFiles)
        origin = schema.with_problem(compiled.origin, job.case.model)
        return msgspec.structs.replace(compiled, operator=job.case.operator, origin=origin)
    return msgspec.structs.replace(compiled, operator=job.case.operator)


def compile_ahead(session: CandidateSession, bound: BoundWorker) -> None:
    """Call a compiled reference once on every set of arguments, so that it compiles before it is timed.

    Raises ReferenceFailure if the compiler refuses the case.
    """
    if session.job.baseline == "eager":
        return
    bound.present(draw_calls(session.job.case, secrets.randbits(63), bound.sets, bound.arithmetic_device))
    try:
        bound.time(bound.sets, time.monotonic() + session.job.deadlines.compile_seconds, pretend=False)
    except CandidateFailedError as error:
        if error.failure.kind == "unsupported":
            raise ReferenceFailure(f"--baseline compile: {error.failure.message}") from error
        raise
