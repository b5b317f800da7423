"""Reads earlier runs: their options, their failed cases, and which run is unfinished.

Separate from `folder`, which knows the files of a run folder but not the options of a run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from torchstone.errors import InfrastructureError, TorchstoneError, UsageError
from torchstone.runs import journal
from torchstone.runs.failing_verdicts import fails
from torchstone.runs.folder import MANIFEST, newest_first, read_manifest, read_plan, read_run, unknown_run
from torchstone.runs.plan import CASE_RECORDS
from torchstone.runs.request import OUTPUT_DIR, RunRequest
from torchstone.schema import Case, Unjudged

_STORED_AS = {"case": "case_recipe", "source": "source_path"}
"""Fields of a request -> names of their full values in the manifest. Under the field's own name, the manifest has only
a key or hash."""


def remembered(folder: Path) -> dict[str, Any]:
    """The options with which the run in this folder was started, as far as its manifest has them."""
    stored = read_manifest(folder).configuration
    fields = {field.name: field.type for field in msgspec.structs.fields(RunRequest)}
    try:
        return {
            name: msgspec.convert(stored[key], kind, dec_hook=_decoded)
            for name, kind in fields.items()
            if (key := _STORED_AS.get(name, name)) in stored
        }
    except msgspec.ValidationError as error:
        raise InfrastructureError(
            f"{folder / MANIFEST} has options that this torchstone does not know ({error}). "
            "Use the torchstone that wrote it."
        ) from error


def was_begun(folder: Path) -> bool:
    """Whether the folder has a manifest. A run that was killed at its start has none."""
    return (folder / MANIFEST).exists()


def _decoded(kind: type, value: Any) -> Any:
    if kind is Path:
        return Path(value)
    raise NotImplementedError(kind)


class Progress(NamedTuple):
    """How many cases of a run are judged, and how many are planned."""

    judged: int
    """Number of cases whose record a resumed run keeps."""
    planned: int | None
    """Number of all cases; None: the run ended before it had a plan, or an older version made it."""

    @property
    def unfinished(self) -> bool:
        """Without a plan, a run is known to be unfinished only if it has no record."""
        return not self.judged if self.planned is None else self.judged < self.planned


def progress_of(folder: Path) -> Progress:
    """Count the judged and planned cases of the run in this folder."""
    records = journal.read(folder / journal.RECORDS, CASE_RECORDS).records
    judged = {record.job_key for record in records if not isinstance(record.verdict, Unjudged)}
    planned = read_plan(folder)
    return Progress(len(judged), None if planned is None else planned.total)


def newest_unfinished(output_dir: Path) -> tuple[Path, Progress]:
    """The run that was started last among those with cases left, and its progress."""
    for folder in newest_first(output_dir):
        try:
            progress = progress_of(folder)
        except TorchstoneError:  # skip a damaged run
            continue
        if progress.unfinished:
            return folder, progress
    raise UsageError(f"there is no unfinished run in {output_dir}. Leave out --resume to start one.")


def find_run(text: str, output_dir: Path) -> Path:
    """The folder that a user means by a path or by a run id."""
    for folder in (Path(text), output_dir / text):
        if (folder / MANIFEST).is_file():
            return folder
    if Path(text).is_dir():
        raise UsageError(f"{text} is not a run folder: there is no {Path(text) / MANIFEST}.")
    raise unknown_run(text, output_dir)


def named_run(path: Path, output_dir: Path = OUTPUT_DIR) -> Path:
    """The path, or if no run is there, the folder of the run with this id. Raises UsageError if there is neither."""
    there = path.is_file() or any((path / name).is_file() for name in (MANIFEST, journal.RECORDS))
    by_id = output_dir / path
    if not there and (by_id / MANIFEST).is_file():
        return by_id
    if not path.exists():
        raise unknown_run(str(path), output_dir) if path.parent == Path() else UsageError(f"{path} does not exist.")
    return path


def failed_cases(folder: Path, *, missing_too: bool = False) -> tuple[Case, ...]:
    """The cases of the run whose verdicts make its exit code other than 0."""
    records = read_run(folder).records
    return tuple(record.case for record in records if fails(record.verdict, missing_too=missing_too))
