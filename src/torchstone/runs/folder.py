"""Makes, writes and reads the folder of a run, which holds its records, options, kernel sources and reports.

records.jsonl               one line per judged case           superseded.jsonl   lines a resumed run replaced
manifest.json               options and machine at the start   manifest_KEY.json  those of a resumed part, if others
implementations/KEY.json    each judged source once            problems.json      what the backend could not use
plan.json                   how many cases are planned, and when each part of the run began and ended
OVERALL_SUMMARY.md, …       the reports
"""

from __future__ import annotations

import contextlib
import itertools
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from torchstone.atomic_files import write_all_atomically, write_atomically
from torchstone.backends import Problem
from torchstone.errors import InfrastructureError, UsageError, nearest
from torchstone.runs import journal
from torchstone.runs.plan import CASE_RECORDS
from torchstone.runs.request import IDENTITY, LATER_PARTS, OUTPUT_DIR
from torchstone.schema import (
    Implementation,
    Manifest,
    PlannedCases,
    PlannedRun,
    Record,
    RunDescription,
    RunPart,
    decode,
    difference,
    encode,
)

MANIFEST = "manifest.json"
PROBLEMS = "problems.json"
PLAN = "plan.json"
IMPLEMENTATIONS = "implementations"

T = TypeVar("T")
R = TypeVar("R")


class FolderRequest(Protocol):
    """The fields of a request that determine its run folder."""

    @property
    def run_id(self) -> str | None:
        """Name of the folder; None: a name is made from the time."""
        ...

    @property
    def resume(self) -> bool:
        """Continue the run with that id."""
        ...

    @property
    def output_dir(self) -> Path:
        """Where run folders are made."""
        ...


class StoredRun(NamedTuple):
    """A run as stored on the disk."""

    records: tuple[Record, ...]
    manifest: Manifest
    problems: tuple[Problem, ...]
    note: str
    """Empty, or what was wrong with the end of the journal."""
    planned: PlannedRun | None = None
    """None: the run was stopped before it had a plan, or an older version made it."""

    @property
    def description(self) -> RunDescription:
        return RunDescription(self.manifest, self.planned)


class OptionNames(NamedTuple):
    """Names of the options by which a command chooses its folder, for messages."""

    place: str = "--output-dir"
    """Option for the parent folder."""
    name: str = "--run-id"
    """Option for the folder's name."""


_USUAL = OptionNames()


@contextlib.contextmanager
def writing_to(folder: Path, what: str = "run folder", options: OptionNames = _USUAL) -> Iterator[None]:
    """Convert OSErrors in the block to a UsageError."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(f"cannot write the {what} {folder}: {reason}. Choose another with {options.place}.") from error


def open_folder(
    request: FolderRequest,
    manifest: Manifest,
    identity: Sequence[str] = IDENTITY,
    options: OptionNames = _USUAL,
) -> Path:
    """The folder for this run: a new one, or the one to continue if its configuration is the same.

    `identity` names the parts of the configuration that must not have changed.
    """
    if request.resume:
        return _reopen_folder(request.output_dir / str(request.run_id), manifest, identity, options)
    with writing_to(request.output_dir / (request.run_id or ""), options=options):
        folder = _make_folder(request, options)
        _write_manifest(folder / MANIFEST, manifest)
    return folder


def _write_manifest(path: Path, manifest: Manifest) -> None:
    write_atomically(path, msgspec.json.format(encode(manifest)))


def require_new(request: FolderRequest) -> None:
    """Refuse the name of a run that exists."""
    if request.run_id is not None and (request.output_dir / request.run_id).exists():
        raise _exists(request.output_dir / request.run_id, _USUAL)


def _exists(folder: Path, options: OptionNames) -> UsageError:
    return UsageError(f"run folder {folder} exists. Use --resume to continue it, or another {options.name}.")


def _make_folder(request: FolderRequest, options: OptionNames) -> Path:
    request.output_dir.mkdir(parents=True, exist_ok=True)
    if request.run_id is not None:
        folder = request.output_dir / request.run_id
        try:
            folder.mkdir()
        except FileExistsError:
            raise _exists(folder, options) from None
        return folder
    stamp = datetime.now().strftime("run_%Y%m%d_%H%M%S")
    for number in itertools.count(1):
        folder = request.output_dir / (stamp if number == 1 else f"{stamp}_{number}")
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            return folder
    raise AssertionError("counting ended")


def _reopen_folder(folder: Path, manifest: Manifest, identity: Sequence[str], options: OptionNames) -> Path:
    if not folder.is_dir():
        raise UsageError(f"{unknown_run(folder.name, folder.parent)} Leave out --resume to start it.")
    killed_at_birth = not (folder / MANIFEST).exists() and not (folder / journal.RECORDS).exists()
    if killed_at_birth:
        with writing_to(folder, options=options):
            _write_manifest(folder / MANIFEST, manifest)
    _require_same_configuration(folder, manifest, identity, options)
    return folder


def _require_same_configuration(
    folder: Path, manifest: Manifest, identity: Sequence[str], options: OptionNames
) -> None:
    before, now = read_manifest(folder).configuration, manifest.configuration
    before = LATER_PARTS | before
    differing = [name for name in identity if before.get(name) != now.get(name)]
    if differing:
        told = "; ".join(line for name in differing for line in _changes(name, before.get(name), now.get(name)))
        raise UsageError(
            f"cannot resume {folder} with another configuration: {told}. "
            f"Use the same options, or another {options.name}."
        )


_OPTIONS = {
    "operators": "--ops", "largest": "--topn", "dtypes": "--dtype", "expression": "-k", "case_keys": "--last-failed",
    "require_authored": "--require-authored-kernel", "regression_threshold_pct": "--regression-threshold",
    "root": "the folder of pairs", "files": "the operations", "implementations": "--impl",
    "enable_cleanup": "--cold-start",
}  # fmt: skip
"""Part of a configuration -> its option on the command line if that has another name, or a description."""
_OFF_SWITCHES = {"measured": "--no-measure", "judged": "--no-judge", "enable_profiling": "--no-profile"}
"""Parts of a configuration that an option turns off."""


def _changes(name: str, before: object, now: object) -> Iterator[str]:
    """One line for a part of the configuration, or for each part of it that differs."""
    if isinstance(before, dict) or isinstance(now, dict):
        old, new = (value if isinstance(value, dict) else {} for value in (before, now))
        for part in sorted(old.keys() | new.keys()):
            if old.get(part) != new.get(part):
                yield from _changes(part, old.get(part), new.get(part))
    else:
        yield _change(name, before, now)


def _change(name: str, before: object, now: object) -> str:
    """``--no-measure was given, now not given``: with the options as the user typed them."""
    if name in _OFF_SWITCHES:
        return f"{_OFF_SWITCHES[name]} was {_said(before is False)}, now {_said(now is False)}"
    return f"{_OPTIONS.get(name, '--' + name.replace('_', '-'))} was {_said(before)}, now {_said(now)}"


def _said(value: object) -> str:
    if value is None or isinstance(value, bool):
        return "given" if value else "not given"
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def note_circumstances(folder: Path, manifest: Manifest, options: OptionNames = _USUAL) -> str:
    """Store a resumed run's manifest if it differs from the first. Returns a line with the differences, or ""."""
    changed = difference(read_manifest(folder), manifest)
    if not changed:
        return ""
    with writing_to(folder, options=options):
        _write_manifest(folder / f"manifest_{manifest.key}.json", manifest)
    return f"circumstances differ from the beginning of this run: {', '.join(changed)}."


_MOST_RUNS = 10
"""Most runs that a message lists."""


def newest_first(output_dir: Path) -> list[Path]:
    """The folders of runs, the one that was started last first."""
    begun = [(path.stat().st_mtime_ns, path.parent) for path in output_dir.glob(f"*/{MANIFEST}")]
    return [folder for _, folder in sorted(begun, reverse=True)]


def unknown_run(name: str, output_dir: Path) -> UsageError:
    """The error for a run that does not exist, with the most similar name and the newest runs that exist."""
    names = [folder.name for folder in newest_first(output_dir)]
    near = nearest(name, names)
    hint = f" Did you mean '{near}'?" if near else ""
    more = f" and {len(names) - _MOST_RUNS} older ones" if len(names) > _MOST_RUNS else ""
    there = f"Runs there: {', '.join(names[:_MOST_RUNS])}{more}." if names else "There is no run."
    return UsageError(f"unknown run '{name}': {output_dir} has no such folder.{hint} {there}")


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a run folder, or of the file itself."""
    path = folder / MANIFEST if folder.is_dir() else folder
    try:
        return decode(path.read_bytes(), Manifest)
    except FileNotFoundError:
        raise UsageError(f"{folder} is not a run folder: there is no {path}.") from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}.") from error
    except msgspec.DecodeError as error:
        raise InfrastructureError(f"{path} is not a manifest ({error}). Restore it or start a new run.") from error


def read_run(folder: Path) -> StoredRun:
    """Read a run from its folder. The run may be finished, stopped or still running."""
    manifest = read_manifest(folder)
    records, note = read_records(folder, CASE_RECORDS)
    problems = _read(folder / PROBLEMS, tuple[Problem, ...]) or ()
    return StoredRun(records, manifest, problems, note, read_plan(folder))


def read_records(folder: Path, kind: journal.RecordKind[R]) -> tuple[tuple[R, ...], str]:
    """The last record of each key, and a note on damage at the end of the journal."""
    contents = journal.read(folder / journal.RECORDS, kind)
    latest = {kind.key(record): record for record in contents.records}
    return tuple(latest.values()), contents.note


def _read(path: Path, kind: type[T]) -> T | None:
    """Decode a file; None: it does not exist."""
    try:
        return decode(path.read_bytes(), kind)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise InfrastructureError(f"{path} is damaged ({error}). Delete it.") from error


def read_plan(folder: Path) -> PlannedRun | None:
    """The plan of a run; None: the run was stopped before it had a plan, or an older version made it."""
    return _read(folder / PLAN, PlannedRun)


def keep_plan(
    folder: Path, cases: tuple[PlannedCases, ...], began: RunPart, left_out: Mapping[str, int] | None = None
) -> PlannedRun:
    """Write the plan before the first case is judged. A resumed run adds a part to the earlier ones."""
    earlier = read_plan(folder)
    planned = PlannedRun(cases, (*(earlier.parts if earlier else ()), began), dict(left_out or {}))
    with writing_to(folder):
        write_atomically(folder / PLAN, encode(planned))
    return planned


def end_part(
    folder: Path, planned: PlannedRun, cases: tuple[PlannedCases, ...], left_out: Mapping[str, int], ended_unix_ns: int
) -> PlannedRun:
    """Write the end time of the run's last part, and the plan at that time."""
    last = msgspec.structs.replace(planned.parts[-1], ended_unix_ns=ended_unix_ns)
    ended = PlannedRun(cases, (*planned.parts[:-1], last), dict(left_out))
    with writing_to(folder):
        write_atomically(folder / PLAN, encode(ended))
    return ended


def open_journal(
    folder: Path,
    kind: journal.RecordKind[R],
    options: OptionNames = _USUAL,
) -> journal.Journal[R]:
    """Open the folder's journal for writing. No other process can open it meanwhile."""
    with writing_to(folder, options=options):
        return journal.Journal(folder, kind)


def bring_in_order(
    folder: Path,
    records: journal.Journal[Record],
    planned: Collection[str],
    offers: Iterable[Implementation | None],
    problems: tuple[Problem, ...],
    *,
    tries_again: bool = True,
) -> None:
    """Move records that the plan no longer counts to another file; write the kernels' sources and the problems."""
    with writing_to(folder):
        records.compact(planned, tries_again=tries_again)
        write_atomically(folder / PROBLEMS, encode(problems))
    keep_sources(folder, offers)


def keep_sources(folder: Path, offers: Iterable[Implementation | None]) -> None:
    """Write the source of each kernel, unless the folder has it already."""
    with writing_to(folder):
        kept = folder / IMPLEMENTATIONS
        kept.mkdir(exist_ok=True)
        there = {path.name for path in kept.iterdir()}
        sources = {f"{offer.key}.json": offer for offer in offers if offer is not None}
        write_all_atomically(kept, {name: encode(sources[name]) for name in sources.keys() - there})


def resuming_command(folder: Path) -> str:
    """The command that continues the run in this folder. The manifest has its other options."""
    parent = folder.parent
    where = ["--output-dir", str(parent)] if parent != OUTPUT_DIR else []
    return shlex.join(["torchstone", "run", "--resume", "--run-id", folder.name, *where])


def save_reports(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write the report files, each in one step."""
    with writing_to(folder):
        write_all_atomically(folder, files)
