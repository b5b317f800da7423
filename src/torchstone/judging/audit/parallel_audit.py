"""Audits many cases (would a trivially wrong kernel agree on one?) in several processes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool

import torch

from torchstone import schema
from torchstone.calls.reference_calls import OPERATOR_ERRORS, first_line
from torchstone.errors import InfrastructureError
from torchstone.judging.audit.adversaries import Audit, audit

ProgressCallback = Callable[[int, int], None]
"""Called after each case with the number of finished cases and the number of all cases."""
_KEPT_BYTES = 1 << 30
"""Device memory that torch's allocator may keep between cases, per process."""
_OUT_OF_MEMORY_TEXTS = ("out of memory", "ALLOC_FAILED")
"""Parts of the messages by which torch and cuBLAS report a lack of memory."""


def audit_in_processes(
    cases: Sequence[schema.Case], device: torch.device, processes: int, watch: ProgressCallback
) -> Audit:
    """Audit the cases as :func:`audit` does, in ``processes`` processes.

    Cases that lacked memory while others ran are audited again, one by one.
    """
    if processes <= 1:
        return _merged(_in_this_process(cases, device, watch))
    parts = _in_several_processes(cases, device, processes, watch)
    lacking = [index for index, part in enumerate(parts) if _lacks_memory(part)]
    for index, part in zip(
        lacking, _in_this_process([cases[i] for i in lacking], device, lambda *_: None), strict=True
    ):
        parts[index] = part
    return _merged(parts)


def _in_this_process(cases: Sequence[schema.Case], device: torch.device, watch: ProgressCallback) -> list[Audit]:
    parts = []
    for done, case in enumerate(cases, start=1):
        parts.append(_audited(case, str(device)))
        watch(done, len(cases))
    return parts


def _in_several_processes(
    cases: Sequence[schema.Case], device: torch.device, processes: int, watch: ProgressCallback
) -> list[Audit]:
    parts: dict[int, Audit] = {}
    context = multiprocessing.get_context("spawn")  # CUDA, if initialized here, does not work after a fork
    with ProcessPoolExecutor(min(processes, max(1, len(cases))), context, _use_one_core) as pool:
        submitted = {pool.submit(_audited, case, str(device)): index for index, case in enumerate(cases)}
        try:
            for done, future in enumerate(as_completed(submitted), start=1):
                parts[submitted[future]] = future.result()
                watch(done, len(cases))
        except BrokenProcessPool as error:
            raise InfrastructureError(
                "a process of the audit died: torch crashed, or the machine ran out of memory."
            ) from error
    return [parts[index] for index in range(len(cases))]


def _use_one_core() -> None:
    torch.set_num_threads(1)


def _audited(case: schema.Case, device: str) -> Audit:
    try:
        return audit([case], torch.device(device))
    except OPERATOR_ERRORS as error:  # raised by calls that the audit itself makes
        return Audit(1, 0, (), {f"{case.operator}({case.label})": first_line(error)})
    finally:
        if device != "cpu" and torch.cuda.memory_reserved(device) > _KEPT_BYTES:
            torch.cuda.empty_cache()


def _lacks_memory(part: Audit) -> bool:
    return any(words in reason for reason in part.unjudged.values() for words in _OUT_OF_MEMORY_TEXTS)


def _merged(parts: Sequence[Audit]) -> Audit:
    unjudged = {case: reason for part in parts for case, reason in part.unjudged.items()}
    findings = tuple(finding for part in parts for finding in part.findings)
    return Audit(sum(p.cases for p in parts), sum(p.judgements for p in parts), findings, unjudged)
