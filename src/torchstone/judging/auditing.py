"""An audit by several processes: cases have nothing to do with one another, and each takes hundreds of small steps."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool

import torch

from torchstone import schema
from torchstone.errors import InfrastructureError
from torchstone.judging.audit import Audit, audit

Watch = Callable[[int, int], None]
"""Told how many cases are done, of how many."""


def audit_in_processes(cases: Sequence[schema.Case], device: torch.device, processes: int, watch: Watch) -> Audit:
    """Every adversary against every case, as by :func:`audit`, with as many processes."""
    if processes <= 1:
        parts = []
        for done, case in enumerate(cases, start=1):
            parts.append(_audited(case, str(device)))
            watch(done, len(cases))
        return _joined(parts)
    parts_by_case: dict[int, Audit] = {}
    starting = multiprocessing.get_context("spawn")  # a device that is open here does not survive a fork
    with ProcessPoolExecutor(min(processes, max(1, len(cases))), starting, _use_one_core) as pool:
        orders = {pool.submit(_audited, case, str(device)): index for index, case in enumerate(cases)}
        try:
            for done, order in enumerate(as_completed(orders), start=1):
                parts_by_case[orders[order]] = order.result()
                watch(done, len(cases))
        except BrokenProcessPool as error:
            raise InfrastructureError("a process of the audit ended: torch ended it, or its memory did.") from error
    return _joined([parts_by_case[index] for index in range(len(cases))])


def _use_one_core() -> None:
    torch.set_num_threads(1)


def _audited(case: schema.Case, device: str) -> Audit:
    try:
        return audit([case], torch.device(device))
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        return Audit(1, 0, (), {f"{case.operator}({case.label})": "more memory than the device has"})


def _joined(parts: Sequence[Audit]) -> Audit:
    unjudged = {case: reason for part in parts for case, reason in part.unjudged.items()}
    findings = tuple(finding for part in parts for finding in part.findings)
    return Audit(sum(p.cases for p in parts), sum(p.judgements for p in parts), findings, unjudged)
