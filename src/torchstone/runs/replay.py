"""Making the call of a recorded disagreement again: same values, same source, a real judge and a real worker.

Separate from running, because nothing is planned or journalled: a replay answers one question and leaves no record.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import msgspec

from torchstone import registry
from torchstone.errors import UsageError
from torchstone.executors import Executor, ExecutorOptions
from torchstone.runs import journal
from torchstone.runs.folder import IMPLEMENTATIONS, MANIFEST, read_manifest
from torchstone.runs.plan import CASE_RECORDS
from torchstone.schema import Disagrees, Implementation, Job, Record, Replay, Verdict, decode
from torchstone.suites.base import names_operator


class Replayable(NamedTuple):
    """A disagreement with all that is needed to see it again."""

    record: Record
    implementation: Implementation
    replay: Replay

    @property
    def job(self) -> Job:
        return Job(self.record.case, self.implementation, "quick", measured=False, replay=self.replay)


class Replayed(NamedTuple):
    """What came of it."""

    source: Replayable
    verdict: Verdict


def find(path: Path, job_key: str | None = None, operator: str | None = None) -> list[Replayable]:
    """The disagreements of a run folder, or of its journal, that fit. Raises where there are none."""
    records = _records_file(path)
    latest = {record.job_key: record for record in journal.read(records, CASE_RECORDS).records}
    chosen = [record for record in latest.values() if _fits(record, job_key, operator)]
    if not chosen:
        raise UsageError(f"{records} has no record {_wanted(job_key, operator)}.")
    found = [
        Replayable(record, _implementation(records.parent, record), record.verdict.replay)
        for record in chosen
        if isinstance(record.verdict, Disagrees) and record.verdict.replay is not None
    ]
    if not found:
        raise UsageError(f"no record {_wanted(job_key, operator)} in {records} is a disagreement that can be replayed.")
    return found


def replay(found: list[Replayable], device: str | None = None, threads: int | None = None) -> Iterator[Replayed]:
    """Each disagreement again, where it happened unless another device is named."""

    def place(item: Replayable) -> tuple[str, str]:
        return device or item.record.device, item.record.isolation.demanded

    for (where, isolation), group in groupby(sorted(found, key=place), key=place):
        items = {item.job.key: item for item in group}
        options = msgspec.convert({"device": where, "isolation": isolation, "threads": threads or 1}, ExecutorOptions)
        executor: Executor = registry.executors.factory("local")(options)
        for record in executor.run([item.job for item in items.values()]):
            yield Replayed(items[record.job_key], record.verdict)


def threads_of(path: Path) -> int:
    """How many threads the run gave to each side; one if its manifest is not at hand."""
    folder = _records_file(path).parent
    if not (folder / MANIFEST).is_file():
        return 1
    threads = read_manifest(folder).configuration.get("threads", 1)
    return threads if isinstance(threads, int) else 1


def _records_file(path: Path) -> Path:
    records = path / journal.RECORDS if path.is_dir() else path
    if not records.is_file():
        raise UsageError(f"{path} is no run folder and no journal: there is no {records}.")
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
    """The source as it was judged, checked against the key that the record names."""
    path = folder / IMPLEMENTATIONS / f"{record.implementation.key}.json"
    try:
        found = decode(path.read_bytes(), Implementation)
    except OSError as error:
        raise UsageError(
            f"the judged source {path} cannot be read: {error.strerror}. Replay the run folder itself."
        ) from error
    except msgspec.DecodeError as error:
        raise UsageError(f"{path} is no implementation: {error}.") from error
    if found.key != record.implementation.key:
        raise UsageError(f"{path} was changed since it was judged: its key is {found.key}.")
    return found
