"""`torchstone list`: what each name means, how large it is where that is known, and what other packages add."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from test_program import environment

import made_records as making
from torchstone import registry
from torchstone.cli import main
from torchstone.suites.opinfo import OpInfoSuite

PLUGIN = '''
from torchstone.suites import SuiteSize

class Described:
    """Squares of
    matrices.

    More about them.
    """

    def cases(self, query):
        raise AssertionError("nothing may be computed for a list")

    def known_size(self, query):
        return SuiteSize(1, 2)

def undescribed():
    raise AssertionError("a suite without a size is not even made")
'''


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    """A folder with an installed package of three suites, of which one cannot be imported."""
    (tmp_path / "squares.py").write_text(PLUGIN)
    (tmp_path / "broken.py").write_text("raise RuntimeError('no such luck')\n")
    about = tmp_path / "squares-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: squares\nVersion: 1.0\n")
    points = "squares = squares:Described\nsilent = squares:undescribed\nunlucky = broken:Suite\n"
    (about / "entry_points.txt").write_text(f"[torchstone.suites]\n{points}")
    return tmp_path


def listed(*arguments: str, home: Path) -> str:
    paths = {"PYTHONPATH": f"{home}:{environment()['PYTHONPATH']}", "XDG_CACHE_HOME": str(home / "cache")}
    script = "import sys; from torchstone.cli import main; code = main(sys.argv[1:]); assert 'torch' not in sys.modules"
    command = [sys.executable, "-c", f"{script}; sys.exit(code)", "list", *arguments]
    env = {**environment(), **paths}
    result = subprocess.run(command, capture_output=True, text=True, cwd=home, env=env, timeout=60, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_suites_of_other_packages_are_described_by_their_docstrings(plugin: Path) -> None:
    lines = listed("suites", home=plugin).splitlines()
    assert "squares\tSquares of matrices.\t1 operator\t2 cases" in lines
    assert "silent" in lines
    assert "unlucky\tsuite 'unlucky' of squares cannot be loaded (no such luck). Reinstall or remove it." in lines
    rows = json.loads(listed("suites", "--json", home=plugin))["suites"]
    assert {"name": "squares", "description": "Squares of matrices.", "operators": 1, "cases": 2} in rows


def test_every_suite_and_backend_of_ours_has_a_line() -> None:
    for names in (registry.suites, registry.backends):
        for name in names.names():
            told = names.description(name)
            assert told.endswith("."), name
            assert len(told) < 100, name


def test_the_size_of_opinfo_is_told_only_if_its_catalogue_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(OpInfoSuite, "cases", None)

    def told(*arguments: str) -> tuple[object, object]:
        assert main(["list", "suites", "--json", *arguments]) == 0
        rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["suites"]}
        return rows["opinfo"]["operators"], rows["opinfo"]["cases"]

    assert told() == (None, None)
    cases = tuple(making.case(name, size) for name in ("aten.relu.default", "aten.sum.default") for size in (1, 2, 3))
    making.keep_opinfo(*cases)
    assert told() == (2, 6)
    assert told("--dtype", "f32,f16") == (None, None)
    (part,) = tmp_path.rglob("part-aten.relu.default.*")
    part.write_bytes(b"damaged")
    assert told() == (None, None)


def test_operators_are_listed_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "operators", "--json", "--dtype", "f32"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["suite"], told["left_out"]) == ("smoke", {})
    relu = next(row for row in told["operators"] if row["name"] == "aten.relu.default")
    assert relu["cases"] > relu["timed"] > 0
