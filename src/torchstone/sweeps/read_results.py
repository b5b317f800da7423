"""Reads the files of a finished or interrupted sweep: the list of rows, and the records beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from torchstone.errors import UsageError
from torchstone.runs.journal import RECORDS, read
from torchstone.schema import SweepRecord, SweepRow, decode
from torchstone.sweeps.output import journal_path, skipped_path
from torchstone.sweeps.rows import SWEEP_RECORDS


def read_rows(path: Path) -> list[SweepRow]:
    """The rows of an output file; an error of one line if it is no such file or has no rows."""
    try:
        rows = decode(path.read_bytes(), list[SweepRow])
    except OSError as error:
        raise UsageError(f"cannot read '{path}': {error.strerror}.") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(
            f"'{path}' is not the output of a sweep: {error}. Give the file that 'torchstone sweep' wrote by --output."
        ) from error
    if not rows:
        raise UsageError(f"'{path}' has no rows: nothing was timed. The reasons are in '{skipped_path(path)}'.")
    _require_positive_times(path, rows)
    return rows


def _require_positive_times(path: Path, rows: Sequence[SweepRow]) -> None:
    for number, row in enumerate(rows):
        if not row.time_ms > 0:
            raise UsageError(f"'{path}': time_ms of row {number} is {row.time_ms}; a time is more than 0.")


def read_records(path: Path) -> tuple[SweepRecord, ...]:
    """The records from which the rows of this output file were made; none if they are not beside it."""
    contents = read(journal_path(path) / RECORDS, SWEEP_RECORDS)
    return tuple({record.point: record for record in contents.records}.values())
