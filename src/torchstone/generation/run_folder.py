"""The folder of a run of generation: how it is written, and how it is read again.

generation.json                 what the run is about            manifest.json     its circumstances and options
records.jsonl                   one line per attempt             metadata.txt      the same for people
OVERALL_SUMMARY.txt, README.md  what came of it
relu/relu_attempt_1.py          code of an attempt               relu/relu_attempt_1.records.jsonl   its records
relu/transcript.jsonl, .md      what was asked and answered      relu/best.json    the attempt that counts
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from torchstone.errors import InfrastructureError, UsageError
from torchstone.runs import folder as folders
from torchstone.runs.journal import RecordKind
from torchstone.schema import Manifest, Record, decode
from torchstone.schema.generation import Attempt, GenerationRun, NotJudged, ProviderFailed

GENERATION = "generation.json"


def attempt_key(operator: str, number: int) -> str:
    """Two lines with the same key are about the same attempt; the later one counts."""
    return f"{operator}#{number}"


ATTEMPTS = RecordKind(
    "attempt",
    Attempt,
    lambda attempt: attempt_key(attempt.operator, attempt.number),
    lambda attempt: isinstance(attempt.outcome, (ProviderFailed, NotJudged)),
)
"""The journal of a run of generation."""


class StoredGeneration(NamedTuple):
    """A run of generation as it lies on the disk: finished, stopped or still going on."""

    folder: Path
    run: GenerationRun
    manifest: Manifest
    attempts: tuple[Attempt, ...]
    """The last of each operator and number, in the order of writing."""
    note: str
    """Empty, or what was wrong with the end of the journal."""


def read_generation(folder: Path) -> StoredGeneration:
    """The run in this folder."""
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


def records_of(folder: Path, file: str) -> tuple[Record, ...]:
    """The records of one judged attempt; ``file`` is its `records_file`."""
    path = folder / file
    try:
        return tuple(_records(path))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}.") from error
    except msgspec.DecodeError as error:
        raise InfrastructureError(f"{path} is damaged ({error}). Restore it from a copy.") from error


def _records(path: Path) -> Iterator[Record]:
    return (decode(line, Record) for line in path.read_bytes().splitlines() if line)
