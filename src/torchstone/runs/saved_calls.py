"""Names the files with the argument values of replayed calls, and moves each into place only when it is complete."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from torchstone.errors import UsageError


class SavedCalls:
    """The temporary file that the judge writes for each call, and the file's final path."""

    def __init__(self, folder: Path, save: Path, job_keys: Sequence[str]) -> None:
        """For several calls the files are numbered: ``case-1.pt``, ``case-2.pt``."""
        self._folder = folder
        names = [save] if len(job_keys) == 1 else [_numbered(save, number) for number in range(1, len(job_keys) + 1)]
        self._targets = dict(zip(job_keys, names, strict=True))

    def written_to(self, job_key: str) -> Path:
        """The temporary file that the judge writes."""
        return self._folder / job_key

    def keep(self, job_key: str) -> Path | None:
        """Move the file to its final path, and return it. None: the call was not made, so there is no file."""
        written, target = self.written_to(job_key), self._targets[job_key]
        return written.replace(target) if written.is_file() else None


@contextmanager
def saved_calls(save: Path, job_keys: Sequence[str]) -> Iterator[SavedCalls]:
    """Make a temporary folder beside ``save``, so that a finished file can be moved there in one step."""
    try:
        folder = tempfile.TemporaryDirectory(dir=save.absolute().parent, prefix=".torchstone-")
    except OSError as error:
        raise UsageError(f"cannot write '{save}': {error.strerror}. Name a file in a folder that exists.") from error
    with folder as name:
        yield SavedCalls(Path(name), save, job_keys)


def _numbered(save: Path, number: int) -> Path:
    return save.with_name(f"{save.stem}-{number}{save.suffix}")
