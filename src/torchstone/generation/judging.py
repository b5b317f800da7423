"""Hands the code of an attempt to the judge, keeps its records, and says in short what came of it.

Code that a model wrote runs only in the judge's sandbox. That the sandbox holds is seen before the first of it is
judged, by a call of torch's own operator.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torchstone.api import Evaluation, Judge
from torchstone.durable import write_atomically
from torchstone.errors import IsolationUnavailableError
from torchstone.feedback import FeedbackInfo, feedback_of
from torchstone.generation.request import GenerationRequest
from torchstone.generation.run_folder import OperatorFolder, records_of, write_records
from torchstone.schema import Case, Record, SourceFile, SourceFiles, Unjudged, torchs_own, verdict_name
from torchstone.schema.generation import Judged, NotJudged

REQUIRED_LAYERS = frozenset({"processes", "files", "network"})
"""Without these a kernel could read keys from other processes or from files, and send them away."""
_IDLE_SECONDS = 900.0
"""A model may think for minutes; the judge stays ready for longer than that."""


def open_judge(request: GenerationRequest, device: str) -> Judge:
    """The judge of a whole run, with its settings."""
    return Judge(
        device=device,
        effort=request.effort,
        isolation=request.isolation,
        threads=request.threads,
        judges=request.judges,
        shapes=request.shapes,
        non_finite=request.non_finite,
        require_authored=request.require_authored,
        deadlines=request.deadlines,
        limits=request.limits,
        idle_seconds=_IDLE_SECONDS,
    )


class KernelJudge:
    """Judges attempts, as many at once as are there."""

    def __init__(self, judge: Judge, required_layers: frozenset[str] = REQUIRED_LAYERS) -> None:
        self._judge = judge
        self._required = required_layers
        self._sandbox_seen: asyncio.Task[None] | None = None

    def begin(self, case: Case) -> None:
        """Start the judge, while the first replies are still awaited."""
        self._sandbox_seen = asyncio.create_task(self._see_sandbox(case))

    async def close(self) -> None:
        if self._sandbox_seen is not None:
            self._sandbox_seen.cancel()
        await asyncio.to_thread(self._judge.close)

    async def judged(
        self, operator: str, cases: tuple[Case, ...], folder: OperatorFolder, number: int, entry: str, code: str
    ) -> Judged | NotJudged:
        """Write the kernel's file, judge it, write its records."""
        file = folder.kernel(number)
        await asyncio.to_thread(write_atomically, file, code.encode("utf-8", "replace"))
        if self._sandbox_seen is not None:
            await asyncio.shield(self._sandbox_seen)
        found = await self._judge.aevaluate(file, operator, entry=entry, cases=cases)
        return await asyncio.to_thread(_kept, found, folder, number)

    async def _see_sandbox(self, case: Case) -> None:
        if not self._required:
            return
        settings: dict[str, Any] = {"cases": (case,), "effort": "quick", "require_authored": False}
        found = await self._judge.aevaluate(torchs_own(case), case.operator, purpose="check", **settings)
        missing = sorted(self._required.difference(*(record.isolation.active for record in found.records)))
        if missing:
            raise IsolationUnavailableError(
                f"kernels written by a model run only in the sandbox, and its layers {', '.join(missing)} are missing "
                "on this machine. 'torchstone doctor' says how to get them."
            )


def _kept(found: Evaluation, folder: OperatorFolder, number: int) -> Judged | NotJudged:
    path = folder.records(number)
    write_records(path, found.records)
    return outcome_of(found.records, folder.within_run(path))


def outcome_of(records: Sequence[Record], file: str) -> Judged | NotJudged:
    """In short, for the journal."""
    unjudged = [record.verdict.reason for record in records if isinstance(record.verdict, Unjudged)]
    if unjudged:
        return NotJudged(unjudged[0])
    info = feedback_of(records)
    counted = info.cases - info.excused_cases
    return Judged(
        Evaluation("", tuple(records)).verdict,
        dict(Counter(verdict_name(record.verdict) for record in records)),
        file,
        info.right,
        info.right_cases / counted if counted else 0.0,
        info.overall_speedup,
        info.overall_speedup_low,
        info.overall_speedup_high,
    )


def feedback_from(run: Path, outcome: Judged, name: str, code: str, entry: str) -> FeedbackInfo:
    """What the author of a judged attempt is told."""
    return feedback_of(records_of(run, outcome.records_file), source=SourceFiles((SourceFile(name, code),), entry))
