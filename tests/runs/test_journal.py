"""The journal keeps every record through crashes, torn lines and second writers."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import made_records as making
from torchstone.errors import InfrastructureError, UsageError
from torchstone.runs import journal
from torchstone.runs.journal import RECORDS, SUPERSEDED, Journal
from torchstone.runs.journal import read as read_kind
from torchstone.runs.plan import CASE_RECORDS
from torchstone.schema import FORMAT_VERSION, Record, Unjudged, encode


def read(path: Path) -> journal.Contents[Record]:
    return read_kind(path, CASE_RECORDS)


def some(count: int) -> list[Record]:
    return [making.record(of=making.case(size=size)) for size in range(1, count + 1)]


def write(folder: Path, records: list[Record]) -> Path:
    with Journal(folder, CASE_RECORDS) as written:
        for record in records:
            written.append(record)
    return folder / RECORDS


def test_what_is_appended_is_read_again(tmp_path: Path) -> None:
    records = [making.record(verdict, of=making.case(size=i)) for i, verdict in enumerate(making.VERDICTS)]
    records.append(making.record(of=making.case(size=99, timed=True), measured=making.measurement()))
    contents = read(write(tmp_path, records))
    assert list(contents.records) == records
    assert contents.note == ""


def test_a_folder_without_a_journal_holds_nothing(tmp_path: Path) -> None:
    assert read(tmp_path / RECORDS).records == ()


def test_cut_at_any_byte_the_whole_lines_before_it_survive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda descriptor: None)  # two thousand files need not reach the disk
    records = some(3)
    data = write(tmp_path, records).read_bytes()
    lengths = [len(encode(record)) for record in records]
    ends = [sum(lengths[: i + 1]) + i for i in range(3)]
    for cut in range(len(data) + 1):
        folder = tmp_path / str(cut)
        folder.mkdir()
        (folder / RECORDS).write_bytes(data[:cut])
        whole = sum(end <= cut for end in ends)
        with Journal(folder, CASE_RECORDS) as reopened:
            assert list(reopened.records) == records[:whole]
            torn = cut not in (0, len(data)) and cut not in {e for end in ends for e in (end, end + 1)}
            assert ("torn" in reopened.note) == torn
            reopened.append(records[2])
        again = read(folder / RECORDS)
        assert list(again.records) == [*records[:whole], records[2]]
        assert again.note == ""


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from(making.VERDICTS), min_size=1, max_size=6), st.data())
def test_garbage_after_the_last_line_costs_only_the_garbage(
    tmp_path_factory: pytest.TempPathFactory, verdicts: list[object], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("run")
    records = [making.record(verdict, of=making.case(size=i)) for i, verdict in enumerate(verdicts)]  # type: ignore[arg-type]
    path = write(folder, records)
    garbage = data.draw(st.binary(min_size=1, max_size=40).filter(lambda raw: b"\n" not in raw))
    with path.open("ab") as file:
        file.write(garbage + data.draw(st.sampled_from([b"", b"\n"])))
    with Journal(folder, CASE_RECORDS) as reopened:
        assert list(reopened.records) == records
    assert path.read_bytes() == b"".join(encode(record) + b"\n" for record in records)


def test_a_broken_line_in_the_middle_is_named_with_file_and_line(tmp_path: Path) -> None:
    path = write(tmp_path, some(3))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b'{"broken": \n' + lines[2])
    with pytest.raises(InfrastructureError, match=r"records\.jsonl:2 is not a record"):
        read(path)


def test_a_newer_format_is_refused_even_on_the_last_line(tmp_path: Path) -> None:
    path = write(tmp_path, some(1))
    newer = msgspec.json.decode(path.read_bytes())
    newer["format_version"] = FORMAT_VERSION + 1
    newer["verdict"] = {"type": "unheard_of"}
    with path.open("ab") as file:
        file.write(msgspec.json.encode(newer) + b"\n")
    with pytest.raises(UsageError, match=rf"record format {FORMAT_VERSION + 1}; .* reads up to {FORMAT_VERSION}"):
        Journal(tmp_path, CASE_RECORDS)
    assert len(path.read_bytes().splitlines()) == 2


def test_a_second_writer_learns_which_process_holds_the_run(tmp_path: Path) -> None:
    with Journal(tmp_path, CASE_RECORDS), pytest.raises(UsageError, match=f"being written by process {os.getpid()}"):
        Journal(tmp_path, CASE_RECORDS)
    Journal(tmp_path, CASE_RECORDS).close()


def test_a_killed_writer_does_not_keep_the_lock(tmp_path: Path) -> None:
    script = "from torchstone.runs.journal import Journal; from torchstone.runs.plan import CASE_RECORDS;"
    script += f"from pathlib import Path; Journal(Path({str(tmp_path)!r}), CASE_RECORDS);"
    script += "import os; os.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -9
    Journal(tmp_path, CASE_RECORDS).close()


def test_a_lock_inherited_by_an_orphan_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "_PATIENCE_SECONDS", 0.1)
    held = Journal(tmp_path, CASE_RECORDS)
    (tmp_path / journal.LOCK).write_text("999999999\n")
    with pytest.raises(UsageError, match="process 999999999"):
        Journal(tmp_path, CASE_RECORDS)
    held.close()


def test_a_full_disk_loses_nothing_that_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = some(2)
    real_write = os.write
    with Journal(tmp_path, CASE_RECORDS) as written:
        written.append(first)
        monkeypatch.setattr(os, "write", lambda descriptor, data: real_write(descriptor, data[: len(data) // 2]))
        with pytest.raises(InfrastructureError, match="1 records are safe"):
            written.append(second)
        monkeypatch.undo()
        written.append(second)
    assert list(read(tmp_path / RECORDS).records) == [first, second]


def test_the_disk_has_everything_when_a_journal_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def slow_disk(descriptor: int) -> None:
        size = os.fstat(descriptor).st_size
        time.sleep(0.05)
        sizes.append(size)

    records = some(40)
    with Journal(tmp_path, CASE_RECORDS) as written:
        monkeypatch.setattr(os, "fdatasync", slow_disk)
        for record in records:
            written.append(record)
    assert sizes[-1] == (tmp_path / RECORDS).stat().st_size
    assert len(sizes) < len(records) / 2, "each record waited for the disk"


def test_a_disk_that_does_not_keep_what_was_written_is_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken_disk(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", broken_disk)
    written = Journal(tmp_path, CASE_RECORDS)
    written.append(some(1)[0])
    with pytest.raises(InfrastructureError, match=r"did not store all of .*Input/output error"):
        written.close()


def test_compaction_moves_unjudged_unplanned_and_repeated_records(tmp_path: Path) -> None:
    keep, unplanned, repeated = some(3)
    unjudged = making.record(Unjudged("the judge died"), of=making.case(size=9))
    later = msgspec.structs.replace(repeated, attempts=2)
    write(tmp_path, [keep, unplanned, repeated, unjudged, later])
    planned = {keep.job_key, repeated.job_key, unjudged.job_key}
    with Journal(tmp_path, CASE_RECORDS) as written:
        assert written.compact(planned) == 3
        assert written.compact(planned) == 0
        written.append(unplanned)
        assert list(written.records) == [keep, later, unplanned]
    assert list(read(tmp_path / RECORDS).records) == [keep, later, unplanned]
    assert list(read(tmp_path / SUPERSEDED).records) == [unplanned, repeated, unjudged]


def test_compaction_keeps_an_answer_over_a_later_failure_of_ours(tmp_path: Path) -> None:
    answer = making.record()
    write(tmp_path, [answer, making.record(Unjudged("the judge died"))])
    with Journal(tmp_path, CASE_RECORDS) as written:
        written.compact({answer.job_key})
        assert list(written.records) == [answer]


def test_a_crash_between_the_two_files_of_a_compaction_doubles_nothing(tmp_path: Path) -> None:
    (moved,) = some(1)
    write(tmp_path, [moved])
    (tmp_path / SUPERSEDED).write_bytes(encode(moved) + b"\n")
    with Journal(tmp_path, CASE_RECORDS) as written:
        written.compact(set())
    assert list(read(tmp_path / SUPERSEDED).records) == [moved]
    assert read(tmp_path / RECORDS).records == ()


def test_records_of_versions_that_did_not_name_the_machine_are_read(tmp_path: Path) -> None:
    path = write(tmp_path, some(2))
    old = []
    for line in path.read_bytes().splitlines():
        record = msgspec.json.decode(line)
        for name in ("node", "device_uuid", "device_model"):
            record.pop(name, None)
        for name in ("held", "results"):
            record["isolation"].pop(name, None)
        old.append(msgspec.json.encode(record))
    path.write_bytes(b"\n".join(old) + b"\n")
    found = read(path).records
    assert [(record.node, record.device_uuid, record.device_model) for record in found] == [("", "", "")] * 2
    assert {(record.isolation.held, record.isolation.results) for record in found} == {("traced", "read")}
