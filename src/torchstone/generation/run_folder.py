"""Writes and reads the folder of a generation run.

generation.json                 what the run is about            manifest.json     its circumstances and options
records.jsonl                   one line per attempt             metadata.txt      the same for people
OVERALL_SUMMARY.txt, README.md  what came of it                  usage.json        tokens used, for budgets
relu/relu_attempt_1.py          code of an attempt               relu/relu_attempt_1.records.jsonl   its records
relu/transcript.jsonl, .md      what was asked and answered      relu/best.json    the attempt that counts
relu/relu_attempt_1.profile.json  torch's profile of a right attempt, if feedback has profiles
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from torchstone.atomic_files import write_atomically
from torchstone.errors import InfrastructureError, UsageError
from torchstone.generation.budget import added
from torchstone.generation.strategies import best_of
from torchstone.generation.transcript import TRANSCRIPT, read_exchanges
from torchstone.runs import folder as folders
from torchstone.runs.journal import RecordKind
from torchstone.schema import Manifest, Record, decode, encode
from torchstone.schema.generation import (
    BEST,
    GENERATION,
    Attempt,
    BestAttempt,
    GenerationRun,
    Judged,
    NotJudged,
    ProviderFailed,
    Usage,
)

_USAGE = "usage.json"


def attempt_key(operator: str, number: int) -> str:
    """The journal's key of an attempt. Of several lines with the same key, the last one counts."""
    return f"{operator}#{number}"


ATTEMPTS = RecordKind(
    "attempt",
    Attempt,
    lambda attempt: attempt_key(attempt.operator, attempt.number),
    lambda attempt: isinstance(attempt.outcome, (ProviderFailed, NotJudged)),
)
"""The records of a generation run's journal. A resumed run repeats attempts without a reply or a verdict."""


class OperatorFolder(NamedTuple):
    """The paths of the files of one operator."""

    run: Path
    name: str
    """Name of the operator's folder: ``relu``."""
    suffix: str
    """Suffix of kernel files: ``.py``."""

    @property
    def path(self) -> Path:
        return self.run / self.name

    @property
    def transcript(self) -> Path:
        return self.path / TRANSCRIPT

    def kernel(self, number: int) -> Path:
        return self.path / f"{self.name}_attempt_{number}{self.suffix}"

    def records(self, number: int) -> Path:
        return self.path / f"{self.name}_attempt_{number}.records.jsonl"

    def profile(self, number: int) -> Path:
        return self.path / f"{self.name}_attempt_{number}.profile.json"

    def within_run(self, path: Path) -> str:
        """The path relative to the run folder, as journals store it."""
        return str(path.relative_to(self.run))


class StoredGeneration(NamedTuple):
    """A generation run as read from its folder: finished, stopped or in progress."""

    folder: Path
    run: GenerationRun
    manifest: Manifest
    attempts: tuple[Attempt, ...]
    """The last record of each attempt, in the order of writing."""
    note: str
    """What is wrong with the end of the journal; empty: nothing."""


def read_generation(folder: Path) -> StoredGeneration:
    """Read the run in this folder. Raises UsageError if it holds none."""
    path = folder / GENERATION
    try:
        run = decode(path.read_bytes(), GenerationRun)
    except FileNotFoundError:
        raise UsageError(f"{folder} is not a run of 'torchstone generate': there is no {path}.") from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}.") from error
    except msgspec.DecodeError as error:
        raise InfrastructureError(f"{path} is damaged ({error}). Restore it or start a new run.") from error
    attempts, note = folders.read_records(folder, ATTEMPTS)
    return StoredGeneration(folder, run, folders.read_manifest(folder), attempts, note)


def newest_generation(folder: Path) -> Path:
    """The folder of the run that was started last, among those in ``folder``."""
    found = [path.parent for path in folder.glob(f"*/{GENERATION}")]
    if not found:
        raise UsageError(f"there is no run of 'torchstone generate' in {folder} to resume. Leave out --resume.")
    return max(found, key=lambda each: decode((each / GENERATION).read_bytes(), GenerationRun).started_unix_ns)


def records_of(folder: Path, file: str) -> tuple[Record, ...]:
    """The records of one judged attempt; ``file`` is its `records_file`."""
    path = folder / file
    try:
        return tuple(_records(path))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}.") from error
    except msgspec.DecodeError as error:
        raise InfrastructureError(f"{path} is damaged ({error}). Restore it from a copy.") from error


def write_records(path: Path, records: Iterable[Record]) -> None:
    """Write the records of one attempt in one step."""
    write_atomically(path, b"".join(encode(record) + b"\n" for record in records))


def write_usage(run: Path, used: Usage) -> None:
    """Write the tokens that all requests of the run used. Requests in progress count as their worst case."""
    write_atomically(run / _USAGE, encode(used) + b"\n")


def read_usage(run: Path) -> Usage:
    """The usage of earlier parts of the run. Runs of older versions have no such file: their transcripts are added."""
    path = run / _USAGE
    try:
        return decode(path.read_bytes(), Usage)
    except FileNotFoundError:
        exchanges = (each for file in sorted(run.glob(f"*/{TRANSCRIPT}")) for each in read_exchanges(file))
        return functools.reduce(added, (each.usage for each in exchanges), Usage())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}.") from error
    except msgspec.DecodeError as error:
        raise InfrastructureError(f"{path} is damaged ({error}). Delete it; the transcripts then count.") from error


def write_best(folder: OperatorFolder, attempts: Sequence[Attempt]) -> None:
    """Name the best attempt in `best.json`, if one was judged."""
    best = best_of(attempts)
    if best is None or not isinstance(best.outcome, Judged):
        return
    found = best.outcome
    told = BestAttempt(
        folder.kernel(best.number).name,
        best.number,
        found.right,
        found.correctness,
        found.speedup,
        found.speedup_low,
    )
    write_atomically(folder.path / BEST, msgspec.json.format(encode(told)) + b"\n")


def _records(path: Path) -> Iterator[Record]:
    return (decode(line, Record) for line in path.read_bytes().splitlines() if line)
