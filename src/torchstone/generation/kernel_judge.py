"""Has the code of an attempt judged: writes the kernel's file and its records, and summarizes the outcome.

Code that a model wrote runs only in the judge's sandbox. Before the first attempt, torch's own operator is judged:
its records must show that the required layers of the sandbox are active.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torchstone.api import Evaluation, Judge
from torchstone.atomic_files import write_atomically
from torchstone.errors import IsolationUnavailableError
from torchstone.feedback import FeedbackInfo, feedback_of
from torchstone.generation.authorship import authorship_of
from torchstone.generation.request import GenerationRequest
from torchstone.generation.run_folder import OperatorFolder, records_of, write_records
from torchstone.schema import (
    Case,
    Profile,
    Record,
    SourceFile,
    SourceFiles,
    Unjudged,
    forward_operator,
    torchs_own,
    verdict_name,
)
from torchstone.schema.generation import Judged, NotJudged

REQUIRED_LAYERS = frozenset({"processes", "files", "network"})
"""Without these a kernel could read keys from other processes or from files, and send them away."""
_IDLE_SECONDS = 900.0
"""How long the judge's processes stay started without work: longer than the minutes that a model may take to reply."""


_JUDGE_FIELDS = (
    "effort", "isolation", "threads", "judges", "shapes", "non_finite", "require_authored", "deadlines", "limits",
)  # fmt: skip
"""Fields of a GenerationRequest that are passed to the judge unchanged."""


def judge_settings(request: GenerationRequest, device: str) -> dict[str, Any]:
    """The arguments of `Judge` for the judge of a run."""
    asked = {name: getattr(request, name) for name in _JUDGE_FIELDS}
    return {**asked, "device": device, "idle_seconds": _IDLE_SECONDS}


def open_judge(request: GenerationRequest, device: str) -> Judge:
    """The judge that serves the whole run."""
    return Judge(**judge_settings(request, device))


class KernelJudge:
    """Judges attempts. Several may be submitted at the same time."""

    def __init__(self, judge: Judge, required_layers: frozenset[str] = REQUIRED_LAYERS) -> None:
        self._judge = judge
        self._required = required_layers
        self._sandbox_check: asyncio.Task[None] | None = None

    def begin(self, case: Case) -> None:
        """Start the judge and check its sandbox with torch's operator, while the first replies are awaited."""
        self._sandbox_check = asyncio.create_task(self._check_sandbox(case))

    async def close(self) -> None:
        if self._sandbox_check is not None:
            self._sandbox_check.cancel()
        await asyncio.to_thread(self._judge.close)

    async def judged(
        self, operator: str, cases: tuple[Case, ...], folder: OperatorFolder, number: int, entry: str, code: str
    ) -> Judged | NotJudged:
        """Write the kernel's file, judge it, write its records. Returns the outcome."""
        file = folder.kernel(number)
        await asyncio.to_thread(write_atomically, file, code.encode("utf-8", "replace"))
        if self._sandbox_check is not None:
            await asyncio.shield(self._sandbox_check)
        found = await self._judge.aevaluate(file, operator, entry=entry, cases=cases)
        return await asyncio.to_thread(_stored_outcome, found, folder, number, code)

    async def _check_sandbox(self, case: Case) -> None:
        if not self._required:
            return
        settings: dict[str, Any] = {"cases": (case,), "effort": "quick", "require_authored": False}
        operator = forward_operator(case.operator)
        found = await self._judge.aevaluate(torchs_own(case), operator, purpose="check", **settings)
        missing = sorted(self._required.difference(*(record.isolation.active for record in found.records)))
        if missing:
            raise IsolationUnavailableError(
                f"kernels written by a model run only in the sandbox, and its layers {', '.join(missing)} are missing "
                "on this machine. 'torchstone doctor' says how to get them."
            )


def _stored_outcome(found: Evaluation, folder: OperatorFolder, number: int, code: str) -> Judged | NotJudged:
    path = folder.records(number)
    write_records(path, found.records)
    return outcome_of(found.records, folder.within_run(path), code)


def outcome_of(records: Sequence[Record], file: str, code: str = "") -> Judged | NotJudged:
    """The outcome of an attempt for the journal. ``file`` is where its records lie, within the run folder."""
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
        authorship_of(records, code) if info.right else "unknown",
    )


def feedback_from(
    run: Path, outcome: Judged, name: str, code: str, entry: str, profile: Profile | None = None
) -> FeedbackInfo:
    """The feedback for the author of a judged attempt. ``name`` is the file name of its code."""
    source = SourceFiles((SourceFile(name, code),), entry)
    return feedback_of(records_of(run, outcome.records_file), source=source, profile=profile)
