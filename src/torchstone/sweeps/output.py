"""Writes the files of a sweep: the timed rows, and beside them what was not timed. Each is replaced in one step."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from torchstone.atomic_files import write_all_atomically
from torchstone.errors import UsageError
from torchstone.schema import encode
from torchstone.schema.sweep import SweepRecord
from torchstone.sweeps.rows import skipped_rows, timed_rows

_SECONDS_BETWEEN = 1.0
"""Least time between two writes of the files, since thousands of rows take a while to write."""


def skipped_path(output: Path) -> Path:
    """``benchmark_results.skipped.json`` beside ``benchmark_results.json``."""
    return output.with_name(f"{output.name.removesuffix('.json')}.skipped.json")


def journal_path(output: Path) -> Path:
    """The folder with the samples of every point, which `--resume` continues."""
    return output.with_name(f"{output.name.removesuffix('.json')}.journal")


class OutputFiles:
    """Writes the two files from the records."""

    def __init__(self, output: Path, now: Callable[[], float] = time.monotonic) -> None:
        self._output, self._now = output, now
        self._written = -_SECONDS_BETWEEN

    def update(self, records: Sequence[SweepRecord]) -> None:
        """Write both files, unless they were written less than a second ago."""
        if self._now() - self._written >= _SECONDS_BETWEEN:
            self.write(records)

    def write(self, records: Sequence[SweepRecord]) -> None:
        """Write both files."""
        files = {
            self._output.name: _json(timed_rows(records)),
            skipped_path(self._output).name: _json(skipped_rows(records)),
        }
        try:
            write_all_atomically(self._output.absolute().parent, files)
        except OSError as error:
            raise UsageError(f"cannot write {self._output}: {error.strerror}. Choose another with --output.") from error
        self._written = self._now()


def _json(listed: Iterable[Any]) -> bytes:
    return msgspec.json.format(encode(list(listed)), indent=2) + b"\n"
