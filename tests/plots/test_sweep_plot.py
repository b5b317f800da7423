"""``torchstone sweep plot`` as a user calls it: files, notes, and errors of one line."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import sweep_rows
from torchstone.cli.sweep_plot import plot
from torchstone.errors import MissingExtraError, UsageError
from torchstone.schema import encode

needs_extra = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("altair", "vl_convert")), reason="needs the extra plots"
)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """An output file with the records beside it, as a sweep leaves them."""
    records = [sweep_rows.record(point) for point in sweep_rows.points(("GELU",), (16, 32), (256,), (8, 64))]
    path = tmp_path / "benchmark_results.json"
    path.write_bytes(encode(sweep_rows.rows(records)))
    (tmp_path / "benchmark_results.journal").mkdir()
    lines = b"".join(encode(one) + b"\n" for one in records)
    (tmp_path / "benchmark_results.journal" / "records.jsonl").write_bytes(lines)
    return path


def called(*arguments: object) -> str:
    """What the command prints. Errors come as they are: the program makes one line of each."""
    runner = CliRunner()
    result = runner.invoke(
        plot, [str(argument) for argument in arguments], standalone_mode=False, catch_exceptions=False
    )
    if result.exception is not None:
        raise result.exception
    return result.output


@needs_extra
def test_every_chart_in_every_format(results: Path, tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    printed = called(results, "--output-dir", folder, "--only", "speedup,roofline")
    names = {"speedup.svg", "speedup.png", "roofline.svg", "roofline.png", "index.html"}
    assert {path.name for path in folder.iterdir()} == names
    assert printed.splitlines() == [str(folder / name) for name in sorted(names, key=_order)]


def _order(name: str) -> tuple[bool, int, int]:
    stem, _, ending = name.partition(".")
    return stem == "index", ("speedup", "roofline", "index").index(stem), ("svg", "png", "html").index(ending)


@needs_extra
def test_without_the_journal_a_note_says_what_is_missing(results: Path, tmp_path: Path) -> None:
    (tmp_path / "benchmark_results.journal" / "records.jsonl").unlink()
    printed = called(results, "--output-dir", tmp_path / "out", "--only", "speedup,roofline", "--format", "svg")
    assert "benchmark_results.journal: no roofline and no name of the device" in printed
    assert "not drawn, for the rows have no figures for it: roofline" in printed
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["speedup.svg"]


@needs_extra
@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("no json", "is not the output of a sweep"),
        ('[{"operation": "GELU"}]', "is not the output of a sweep"),
        ("[]", "has no rows"),
    ],
)
def test_another_file_is_an_error_of_one_line(content: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(content)
    with pytest.raises(UsageError, match=told) as caught:
        called(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("option", "told"), [(("--only", "pie"), "unknown chart 'pie'"), (("--format", "gif"), "unknown format 'gif'")]
)
def test_unknown_names_are_told(option: tuple[str, str], told: str, results: Path) -> None:
    with pytest.raises(UsageError, match=told):
        called(results, *option)


def test_a_missing_extra_is_named(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchstone.plots._PACKAGES", {"no_such_a": "altair", "no_such_b": "vl-convert-python"})
    with pytest.raises(MissingExtraError, match=r"altair and vl-convert-python. .*pip install torchstone\[plots\]"):
        called(results)


def test_the_command_is_known_without_importing_a_library() -> None:
    script = "import sys, torchstone.cli.sweep_plot; assert not {'altair', 'vl_convert', 'torch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
