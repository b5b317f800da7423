"""Repeats the failing call of a judged case: same values, same kernel source, a judge and a worker as in a run.

Separate from `run`, because a replay plans nothing and writes no record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import msgspec

from torchstone import registry
from torchstone.errors import UsageError
from torchstone.executors import Executor, ExecutorOptions
from torchstone.runs import journal
from torchstone.runs.failing_verdicts import fails
from torchstone.runs.folder import IMPLEMENTATIONS, MANIFEST, read_manifest
from torchstone.runs.plan import CASE_RECORDS
from torchstone.runs.saved_calls import SavedCalls, saved_calls
from torchstone.schema import (
    Crashed,
    Disagrees,
    Implementation,
    Job,
    Record,
    Replay,
    Verdict,
    decode,
    verdict_name,
)
from torchstone.suites.base import names_operator


class Replayable(NamedTuple):
    """A failure with all that is needed to repeat it."""

    record: Record
    implementation: Implementation
    replay: Replay
    """The call that failed. If the kernel failed to load, any call: the kernel is loaded first."""

    def job(self, save_to: Path | None = None) -> Job:
        path = None if save_to is None else str(save_to)
        job = Job(self.record.case, self.implementation, "quick", measured=False, replay=self.replay, save_to=path)
        return msgspec.structs.replace(job, try_every_case=True)


class Replayed(NamedTuple):
    """The result of a replay."""

    source: Replayable
    verdict: Verdict
    log_tail: str = ""
    """The last bytes of the kernel's printed output."""
    saved: Path | None = None
    """The file with the values of the call, if it was requested and the call was made."""


class NothingFailed(NamedTuple):
    """No case failed, so there is nothing to replay."""

    verdicts: Counter[str]
    """Number of records with each verdict."""

    def __str__(self) -> str:
        if set(self.verdicts) == {"agrees"}:
            return "nothing to replay: every case agrees"
        return f"nothing to replay: no case failed ({_counts(self.verdicts)})"


def find(path: Path, job_key: str | None = None, operator: str | None = None) -> list[Replayable] | NothingFailed:
    """The matching failures in a run folder or journal file. Raises UsageError if none of them can be replayed."""
    records = _records_file(path)
    latest = {record.job_key: record for record in journal.read(records, CASE_RECORDS).records}
    chosen = [record for record in latest.values() if _fits(record, job_key, operator)]
    if not chosen:
        raise UsageError(f"{records} has no record {_wanted(job_key, operator)}.")
    failures = [record for record in chosen if fails(record.verdict)]
    if not failures:
        return NothingFailed(_verdicts(chosen))
    calls = {record.job_key: call for record in chosen if (call := _call_of(record)) is not None}
    once: dict[str, Record] = {}
    for record in chosen:
        if record.job_key in calls:
            once.setdefault(_identity(record), record)
    found = [
        Replayable(record, _implementation(records.parent, record), calls[record.job_key]) for record in once.values()
    ]
    if not found:
        raise UsageError(
            f"none of the failures in {records} names a call that can be repeated ({_counts(_verdicts(failures))}). "
            "'torchstone show' shows why each failed."
        )
    return found


def _call_of(record: Record) -> Replay | None:
    match record.verdict:
        case Crashed(stage="load"):
            return Replay(record.case, seed=0)
        case Disagrees(replay=call) | Crashed(replay=call):
            return call
    return None


def _identity(record: Record) -> str:
    """A key that is equal for failures that need one replay only. A kernel that fails to load fails for all cases."""
    at_load = isinstance(record.verdict, Crashed) and record.verdict.stage == "load"
    return record.implementation.key if at_load else record.job_key


def _verdicts(records: list[Record]) -> Counter[str]:
    return Counter(verdict_name(record.verdict) for record in records)


def _counts(verdicts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in verdicts.most_common())


def replay(
    found: list[Replayable], device: str | None = None, threads: int | None = None, save: Path | None = None
) -> Iterator[Replayed]:
    """Repeat each failure, on the device of its record unless another one is given.

    ``save``: file for the values of the call. For several failures it is ``case-1.pt``, ``case-2.pt``, in their order.
    """
    with ExitStack() as stack:
        keys = [item.record.job_key for item in found]
        saving = None if save is None else stack.enter_context(saved_calls(save, keys))
        for source, record in _judged(found, device, threads, saving):
            saved = None if saving is None else saving.keep(source.record.job_key)
            yield Replayed(source, record.verdict, record.log_tail, saved)


def _judged(
    found: list[Replayable], device: str | None, threads: int | None, saving: SavedCalls | None
) -> Iterator[tuple[Replayable, Record]]:
    def place(item: Replayable) -> tuple[str, str]:
        return device or item.record.device, item.record.isolation.demanded

    for (where, isolation), group in groupby(sorted(found, key=place), key=place):
        jobs = [(item, item.job(saving.written_to(item.record.job_key) if saving else None)) for item in group]
        items = {job.key: item for item, job in jobs}
        options = msgspec.convert({"device": where, "isolation": isolation, "threads": threads or 1}, ExecutorOptions)
        executor: Executor = registry.executors.factory("local")(options)
        for record in executor.run([job for _, job in jobs]):
            yield items[record.job_key], record


def threads_of(path: Path) -> int:
    """How many CPU threads the run gave to the kernel and to the reference; 1 if there is no manifest."""
    folder = _records_file(path).parent
    if not (folder / MANIFEST).is_file():
        return 1
    threads = read_manifest(folder).configuration.get("threads", 1)
    return threads if isinstance(threads, int) else 1


def _records_file(path: Path) -> Path:
    records = path / journal.RECORDS if path.is_dir() else path
    if not records.is_file():
        raise UsageError(f"{path} is not a run folder and no journal: there is no {records}.")
    return records


def _fits(record: Record, job_key: str | None, operator: str | None) -> bool:
    if job_key is not None and not record.job_key.startswith(job_key):
        return False
    return operator is None or names_operator(operator, record.case.operator)


def _wanted(job_key: str | None, operator: str | None) -> str:
    if job_key is not None:
        return f"of a job '{job_key}'"
    return f"of operator '{operator}'" if operator is not None else "at all"


def _implementation(folder: Path, record: Record) -> Implementation:
    """The kernel's source as it was judged, checked against the content key in the record."""
    path = folder / IMPLEMENTATIONS / f"{record.implementation.key}.json"
    try:
        found = decode(path.read_bytes(), Implementation)
    except OSError as error:
        raise UsageError(
            f"the judged source {path} cannot be read: {error.strerror}. Replay the run folder itself."
        ) from error
    except msgspec.DecodeError as error:
        raise UsageError(f"{path} is not an implementation: {error}.") from error
    if found.key != record.implementation.key:
        raise UsageError(f"{path} was changed since it was judged: its key is {found.key}.")
    return found
