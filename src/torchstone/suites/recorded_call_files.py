"""Reads files of recorded operator calls in Parquet, JSON, JSON Lines or trace text, local or on the Hugging Face hub.

The ending of a file tells its format. Each row is one recorded call. Rows are checked, but their arguments are not yet
parsed: a suite first chooses which rows it uses. All errors are a UsageError that names file and place.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from torchstone.errors import InfrastructureError, MissingExtraError, UsageError
from torchstone.suites.recorded_call_text import TracedCall, TraceTextError, parse_call

HUB = "hf://"
DEFAULT_SOURCE = (
    "hf://datasets/GPUMODE/backendbench_tests/backend_bench_problems.parquet@ca7b1361b162d1499cb22ea4ad589dae506ead5d"
)
"""Calls of 155 models in training, pinned: the file cannot change under a suite's name."""

_HUB_FILE = re.compile(r"hf://datasets/(?P<owner>[\w.-]+)/(?P<name>[\w.-]+)/(?P<file>[^@]+)@(?P<revision>[0-9a-f]{40})")
_OPERATOR = re.compile(r"\w+\.\w+\.\w+", re.ASCII)
_LONG_NUMBER = re.compile(r"(?<![.\d])\d{19,}")
_INT64_MAX = (1 << 63) - 1
"""Largest int64: no case holds and no operator takes a larger integer. Recordings use it for "up to the end"."""
_RENAMED = {"aten.sum.SymInt": "aten.sum.dim_IntList"}
"""Overload name in recordings of older torch versions -> its name now."""
_NEEDS_EXTRA = "needs the package {package}. Install it with: pip install torchstone[traces]"


class Row(msgspec.Struct, frozen=True):
    """One recorded call, by the names that the dataset gives to its columns."""

    op_name: str
    args: str
    """Text of the arguments, in the grammar of :mod:`torchstone.suites.recorded_call_text`."""
    count: int = 1
    """How often the call was recorded. 0: it was made by hand from a recorded call."""
    included_in_benchmark: bool = True
    why_excluded: tuple[str, ...] | None = None
    is_overhead_dominated_op: bool | None = None
    """None: not measured."""
    in_models: tuple[str, ...] | None = None


class RowLocation(NamedTuple):
    """Where a row is in its file."""

    file: str
    unit: str
    """``row``, ``item`` or ``line``."""
    number: int
    column: int | None = None
    """Column at which the arguments begin in the line, if the line holds them unquoted."""

    def __str__(self) -> str:
        return f"{self.file}, {self.unit} {self.number}"


class Recorded(NamedTuple):
    """A row and its place."""

    row: Row
    place: RowLocation

    @property
    def operator(self) -> str:
        return _RENAMED.get(self.row.op_name, self.row.op_name)

    def call(self) -> TracedCall:
        """Parse the arguments. Raises a `UsageError` that names file, row and column."""
        for found in _LONG_NUMBER.finditer(self.row.args):
            if int(found[0][:20]) > _INT64_MAX:
                raise self._error(found.start() + 1, "a whole number that 64 bits cannot hold.")
        try:
            return parse_call(self.row.args)
        except TraceTextError as error:
            raise self._error(error.column, error.problem) from error

    def _error(self, column: int, problem: str) -> UsageError:
        shift = self.place.column
        at = f"column {column} of args" if shift is None else f"column {shift + column}"
        return UsageError(f"{self.place}, {at}: {problem}")


def read_source(source: str) -> list[Recorded]:
    """Every row of a source: a path, or ``hf://datasets/OWNER/NAME/FILE@REVISION``."""
    path = _fetch(source) if source.startswith(HUB) else Path(source)
    read = next((read for ending, read in _READERS.items() if path.name.lower().endswith(ending)), None)
    if read is None:
        raise UsageError(f"'{source}' has none of the endings {', '.join(_READERS)}, by which a source is known.")
    try:
        found = list(read(path))
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise UsageError(f"source '{source}' cannot be read: {error}.") from error
    for recorded in found:
        if not _OPERATOR.fullmatch(recorded.row.op_name):
            raise UsageError(
                f"{recorded.place}: '{recorded.row.op_name}' is no operator. Write it in full: aten.add.Tensor."
            )
    return found


def identity_of(source: str | None) -> str | None:
    """A text that is equal for equal content: the pinned name of a file on the hub, or a hash of local files."""
    if source is None or source.startswith(HUB):
        return source
    path = Path(source)
    try:
        if path.is_dir():
            parts = {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*.py"))}
            return f"sha256:{hashlib.sha256(repr(parts).encode()).hexdigest()}"
        return f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
    except OSError as error:
        raise UsageError(f"source '{source}' cannot be read: {error}.") from error


# ---- the formats


def _parquet_rows(path: Path) -> Iterator[Recorded]:
    try:
        from pyarrow import ArrowInvalid
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise MissingExtraError(f"reading {path.name} {_NEEDS_EXTRA.format(package='pyarrow')}") from error
    try:
        with ParquetFile(path) as file:
            columns = [name for name in file.schema_arrow.names if name in Row.__struct_fields__]
            rows = file.read(columns).to_pylist()
    except ArrowInvalid as error:
        raise UsageError(f"{path} is no Parquet file: {_first_line(error)}.") from error
    for number, row in enumerate(rows, start=1):
        place = RowLocation(str(path), "row", number)
        said = {name: value for name, value in row.items() if value is not None}
        yield Recorded(_checked(place, _as_row, said), place)


def _json_rows(path: Path) -> Iterator[Recorded]:
    try:
        items = msgspec.json.decode(path.read_bytes(), type=list[msgspec.Raw])
    except msgspec.DecodeError as error:
        raise UsageError(f"{path}: {error}. Expected a list of objects with 'op_name' and 'args'.") from error
    for number, item in enumerate(items, start=1):
        place = RowLocation(str(path), "item", number)
        yield Recorded(_checked(place, _ROW.decode, item), place)


def _json_lines(path: Path) -> Iterator[Recorded]:
    data = path.read_bytes()
    text = gzip.decompress(data) if path.suffix.lower() == ".gz" else data
    for number, line in enumerate(text.split(b"\n"), start=1):
        if line.strip():
            place = RowLocation(str(path), "line", number)
            yield Recorded(_checked(place, _ROW.decode, line), place)


def _trace_text(path: Path) -> Iterator[Recorded]:
    """``Operator: aten.add.Tensor``, then a line ``cnt: 12, ((T([2], f16), 1), {})`` for each way it was called."""
    operator = ""
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1):
        if not line.strip():
            continue
        if named := _OPERATOR_LINE.fullmatch(line):
            operator = named.group(1)
        elif (counted := _CALL_LINE.fullmatch(line)) and operator:
            row = Row(operator, counted.group(2), int(counted.group(1)))
            yield Recorded(row, RowLocation(str(path), "line", number, counted.start(2)))
        else:
            expected = "'cnt: 12, ((…), {…})'" if operator else "'Operator: aten.add.Tensor'"
            raise UsageError(f"{path}, line {number}, column 1: expected {expected}, got '{line[:40]}'.")


_ROW = msgspec.json.Decoder(Row)
_OPERATOR_LINE = re.compile(r"\s*Operator:\s*(\S+)\s*")
_CALL_LINE = re.compile(r"\s*cnt:\s*(\d{1,18})\s*,\s*(\S.*?)\s*")
_READERS: dict[str, Callable[[Path], Iterator[Recorded]]] = {
    ".parquet": _parquet_rows,
    ".json": _json_rows,
    ".jsonl": _json_lines,
    ".txt": _trace_text,
    ".jsonl.gz": _json_lines,
}

T = TypeVar("T")


def _as_row(row: object) -> Row:
    return msgspec.convert(row, Row)


def _checked(place: RowLocation, read: Callable[[T], Row], raw: T) -> Row:
    try:
        return read(raw)
    except msgspec.MsgspecError as error:
        raise UsageError(f"{place}: {error}.") from error


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].removesuffix(".")


# ---- the hub


def _fetch(source: str) -> Path:
    """The local copy of a file on the hub, which is downloaded if it is not in the cache."""
    found = _HUB_FILE.fullmatch(source)
    if found is None:
        raise UsageError(
            f"'{source}' is no file of a hub. Write hf://datasets/OWNER/NAME/FILE@REVISION, with the 40 digits of a "
            "commit: a branch may move."
        )
    try:
        import huggingface_hub
    except ImportError as error:
        raise MissingExtraError(f"fetching {source} {_NEEDS_EXTRA.format(package='huggingface_hub')}") from error
    return _download(huggingface_hub, source, found)


def _download(hub: Any, source: str, found: re.Match[str]) -> Path:
    try:
        return Path(
            hub.hf_hub_download(
                repo_id=f"{found['owner']}/{found['name']}",
                filename=found["file"],
                repo_type="dataset",
                revision=found["revision"],
            )
        )
    except (OSError, hub.errors.HfHubHTTPError, hub.errors.HFValidationError) as error:
        raise InfrastructureError(
            f"{source} cannot be fetched: {_first_line(error)}. If you have the file, give --source PATH."
        ) from error
