"""The set-up behind `make run` and `make test`: real checkouts, interpreters and wheels, without network."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import packaging.markers
import packaging.specifiers
import packaging.version
import pytest
from hypothesis import given
from hypothesis import strategies as st

import project
from pep508 import Distribution, Requirement, combine, marker_holds, this_environment, unmet, version_key
from wheels import BadWheelError, Interpreter, Wheel, newest, unpack, wheels_in

ROOT = Path(__file__).resolve().parent.parent
LINUX = Interpreter(python=(3, 12), abi="cp312", machine="x86_64", glibc=(2, 35))
STAMP = ".torchstone-stamp"

needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def make_wheel(
    folder: Path,
    name: str,
    version: str = "1.0",
    requires: Iterable[str] = (),
    tag: str = "py3-none-any",
    files: Mapping[str, str] | None = None,
) -> Path:
    """A small but whole wheel, with one module that knows its version unless other files are given."""
    info = f"{name}-{version}.dist-info"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {each}" for each in requires]
    contents = dict(files) if files is not None else {f"{name}.py": f"version = {version!r}\n"}
    contents[f"{info}/METADATA"] = "\n".join(lines) + "\n"
    contents[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*contents, f"{info}/RECORD"])
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for member, text in contents.items():
            archive.writestr(member, text)
    return path


# Requirements, markers, versions ------------------------------------------------------------------------------

released = st.lists(st.integers(0, 30), min_size=1, max_size=4).map(lambda numbers: ".".join(map(str, numbers)))
suffixes = st.sampled_from(["", "a1", "b2", "rc1", ".post1", ".dev3", "a1.dev2"])
versions = st.builds("{}{}".format, released, suffixes)


@given(versions, versions)
def test_versions_sort_as_packaging_sorts_them(left: str, right: str) -> None:
    theirs = packaging.version.Version(left) < packaging.version.Version(right)
    assert (version_key(left) < version_key(right)) == theirs


@given(released, st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), released)
def test_clauses_decide_as_packaging_decides(version: str, operator: str, wanted: str) -> None:
    clause = f"{operator}{wanted}"
    assert Requirement("x", specifier=clause).accepts(version) == packaging.specifiers.Specifier(clause).contains(
        version
    )


@pytest.mark.parametrize(
    ("clause", "version", "accepted"),
    [
        (">=3.7,<3.9", "3.8.0", True),
        (">=3.7,<3.9", "3.6.0", False),
        (">=2.9", "2.11.0+cu130", True),
        ("==2.13.0", "2.13.0+cpu", True),
        ("==1.4.*", "1.4.9", True),
        ("!=1.4.*", "1.4.9", False),
        ("==1.4.*", "1.40", False),
        ("~=1.4.2", "1.4.9", True),
        ("~=1.4.2", "1.5.0", False),
        ("~=0.1", "0.9", True),
        ("===1.0", "1.0.0", False),
        ("", "0.0.1", True),
    ],
)
def test_a_clause_accepts_only_what_it_names(clause: str, version: str, accepted: bool) -> None:
    assert Requirement("x", specifier=clause).accepts(version) is accepted


@pytest.mark.parametrize(
    "marker",
    [
        "python_version >= '3.11'",
        'python_version < "3.9"',
        "sys_platform == 'win32' or (os_name == 'posix' and python_full_version >= '3.8.1')",
        "platform_machine in 'x86_64 aarch64'",
        "sys_platform not in 'win32 cygwin'",
        "implementation_name != 'pypy'",
    ],
)
def test_markers_hold_as_packaging_says(marker: str) -> None:
    assert marker_holds(marker, this_environment()) == packaging.markers.Marker(marker).evaluate()


@pytest.mark.parametrize("marker", ["python_version", "f('3')", "python_version ~= '3.8'"])
def test_an_unreadable_marker_is_named(marker: str) -> None:
    with pytest.raises(ValueError, match="cannot read the marker"):
        marker_holds(marker, this_environment())


def test_a_requirement_is_read_into_its_parts() -> None:
    read = Requirement.parse("Nvidia_ML.Py [a, B_c] (>=12,<13) ; python_version >= '3.11'")
    assert read == Requirement("nvidia-ml-py", frozenset({"a", "b-c"}), ">=12,<13", "python_version >= '3.11'")
    assert str(read) == "nvidia-ml-py[a,b-c]>=12,<13"


def test_requirements_of_one_name_are_asked_for_together() -> None:
    asked = combine([Requirement.parse("rich>=13.7"), Requirement.parse("rich[x]<16"), Requirement.parse("rich")])
    assert str(asked) == "rich[x]>=13.7,<16"


def missing_names(roots: Iterable[str], have: Mapping[str, Distribution], untouchable: Iterable[str] = ()) -> list[str]:
    found = unmet(map(Requirement.parse, roots), have, set(untouchable), this_environment())
    return sorted(str(each) for asked in found.values() for each in asked)


def test_what_is_there_and_new_enough_is_not_missing() -> None:
    assert missing_names(["click>=8.1"], {"click": Distribution("8.5")}) == []


def test_what_is_too_old_is_missing() -> None:
    assert missing_names(["click>=8.1"], {"click": Distribution("8.0")}) == ["click>=8.1"]


def test_what_an_installed_part_lacks_is_missing() -> None:
    have = {"rich": Distribution("15", ("markdown-it-py>=2",)), "markdown-it-py": Distribution("4", ("mdurl~=0.1",))}
    assert missing_names(["rich"], have) == ["mdurl~=0.1"]


def test_parts_for_another_system_or_an_unwanted_extra_are_not_missing() -> None:
    have = {"a": Distribution("1", ("winonly; sys_platform == 'win32'", "b; extra == 'fast'", "c; extra == 'slow'"))}
    assert missing_names(["a[fast]"], have) == ["b"]


def test_the_machines_own_torch_counts_at_any_version_and_is_not_looked_into() -> None:
    have = {"torch": Distribution("2.5", ("nvidia-cudnn==9",))}
    assert missing_names(["torch>=2.9", "numpy"], have, ["torch", "numpy"]) == []


def test_parts_that_ask_for_each_other_come_to_an_end() -> None:
    have = {"a": Distribution("1", ("b",)), "b": Distribution("1", ("a", "c"))}
    assert missing_names(["a"], have) == ["c"]


def test_this_project_asks_for_test_tools_at_test_and_for_all_tools_at_check() -> None:
    names = {level: {each.name for each in project.requirements(extras)} for level, extras in project.EXTRAS.items()}
    assert {"torch", "msgspec"} <= names["run"] < names["test"] < names["check"]
    assert "pytest" in names["test"]
    assert {"ruff", "mypy"} <= names["check"] - names["test"]


def test_a_pin_holds_the_tools_but_not_a_machines_own_torch() -> None:
    asked = {each.name: each.specifier for each in project.requirements(["dev"])}
    assert "==" in asked["ruff"]
    assert "==" not in asked["torch"]


# Wheels -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tag", "fits"),
    [
        ("py3-none-any", True),
        ("py2.py3-none-any", True),
        ("py2-none-any", False),
        ("cp312-cp312-manylinux2014_x86_64.manylinux_2_17_x86_64", True),
        ("cp312-cp312-linux_x86_64", sys.platform == "linux"),
        ("cp38-abi3-manylinux_2_28_x86_64", True),
        ("cp313-abi3-manylinux_2_28_x86_64", False),
        ("cp311-cp311-manylinux_2_28_x86_64", False),
        ("cp312-cp312t-manylinux_2_28_x86_64", False),
        ("cp312-cp312-manylinux_2_39_x86_64", False),
        ("cp312-cp312-manylinux_2_28_aarch64", False),
        ("cp312-cp312-musllinux_1_2_x86_64", False),
        ("cp312-cp312-win_amd64", False),
        ("py3-none-manylinux_2_17_x86_64", True),
    ],
)
def test_a_wheel_fits_by_its_tags(tag: str, fits: bool) -> None:
    assert Wheel.parse(Path(f"msgspec-0.22.0-{tag}.whl")).fits(LINUX) is fits


def test_a_file_that_is_not_named_like_a_wheel_is_refused() -> None:
    with pytest.raises(BadWheelError, match=r"renamed\.whl is not named like a wheel"):
        Wheel.parse(Path("renamed.whl"))


def test_the_newest_wheel_that_is_accepted_is_taken(tmp_path: Path) -> None:
    for version in ("1.9", "1.10", "2.0"):
        make_wheel(tmp_path, "part", version)
    chosen = newest(wheels_in(tmp_path), Requirement.parse("part<2"))
    assert chosen is not None
    assert chosen.version == "1.10"


def test_scripts_and_libraries_go_where_pip_would_put_them(tmp_path: Path) -> None:
    files = {"tool.data/scripts/tool": "#!", "tool.data/purelib/tool.py": "", "tool.data/headers/tool.h": ""}
    unpack(Wheel.parse(make_wheel(tmp_path / "wheels", "tool", files=files)), tmp_path / "site")
    assert os.access(tmp_path / "site/bin/tool", os.X_OK)
    assert (tmp_path / "site/tool.py").exists()
    assert not list(tmp_path.glob("site/**/tool.h"))


def test_another_version_is_replaced_whole(tmp_path: Path) -> None:
    old = make_wheel(tmp_path, "part", "1.0", files={"part/gone.py": "", "part/__init__.py": ""})
    new = make_wheel(tmp_path, "part", "2.0", files={"part/__init__.py": ""})
    for path in (old, new):
        unpack(Wheel.parse(path), tmp_path / "site")
    assert not (tmp_path / "site/part/gone.py").exists()
    assert [path.name for path in (tmp_path / "site").glob("*.dist-info")] == ["part-2.0.dist-info"]


def test_a_wheel_that_reaches_out_of_its_folder_is_refused(tmp_path: Path) -> None:
    path = make_wheel(tmp_path / "wheels", "evil", files={"../escaped.py": ""})
    with pytest.raises(BadWheelError, match="outside of its folder"):
        unpack(Wheel.parse(path), tmp_path / "site")
    assert not (tmp_path / "escaped.py").exists()


def test_a_broken_wheel_is_named(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, "part")
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(BadWheelError, match=r"part-1\.0-py3-none-any\.whl is broken"):
        unpack(Wheel.parse(path), tmp_path / "site")


# A checkout on a machine that has a torch, no pip and no network ------------------------------------------------

PYPROJECT = """
[build-system]
requires = []
[project]
name = "torchstone"
dependencies = ["torch>=2.9", "numpy>=1.26", "alpha>=1.5"]
[project.optional-dependencies]
triton = ["triton>=3.7,<3.9"]
test = ["prover"]
dev = ["torchstone[test]", "linter>=1"]
"""
PROGRAM = """
import json, sys, alpha, torch
print(json.dumps({"arguments": sys.argv[1:], "alpha": alpha.version, "torch": [torch.version, torch.__file__]}))
"""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bare interpreter with a stand-in for torch and its company, older than what is asked for."""
    folder = tmp_path_factory.mktemp("machine")
    venv.create(folder, with_pip=False, symlinks=True)
    site = next(folder.glob("lib/python*/site-packages"))
    for name, version in {"torch": "2.11.0+cu130", "numpy": "2.5.2", "triton": "3.6.0"}.items():
        unpack(Wheel.parse(make_wheel(folder / "made", name, version)), site)
    return folder


@dataclass(frozen=True)
class Checkout:
    """A copy of the set-up with a tiny project around it."""

    folder: Path
    python: Path

    @property
    def deps(self) -> Path:
        return self.folder / ".deps"

    def carry(self, name: str, version: str = "1.0", requires: Iterable[str] = (), tag: str = "py3-none-any") -> None:
        make_wheel(self.folder / "wheels", name, version, requires, tag)

    def call(self, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=self.folder, env=clean_variables(variables), capture_output=True, text=True, check=False
        )

    def bootstrap(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return self.call(str(self.python), "tools/bootstrap.py", *arguments, **variables)


def clean_variables(more: Mapping[str, str]) -> dict[str, str]:
    """The variables of this process less those that would lead make or Python elsewhere."""
    unwanted = ("PYTHON", "MAKE", "MFLAGS", "ARGS", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if not name.startswith(unwanted)} | dict(more)


@pytest.fixture
def checkout(tmp_path: Path, machine: Path) -> Checkout:
    """A fresh checkout with two carried wheels: `alpha`, which asks for `beta`."""
    folder = tmp_path / "checkout"
    shutil.copytree(ROOT / "tools", folder / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "Makefile", folder)
    (folder / "pyproject.toml").write_text(PYPROJECT)
    (folder / "constraints.txt").write_text("torch==2.13.0\nalpha<3  # a reason\n")
    (folder / "src/torchstone").mkdir(parents=True)
    (folder / "src/torchstone/__init__.py").touch()
    (folder / "src/torchstone/__main__.py").write_text(PROGRAM)
    fresh = Checkout(folder, machine / "bin/python")
    fresh.carry("alpha", "2.0", requires=["beta>=1"])
    fresh.carry("beta", "1.0")
    return fresh


def test_what_is_missing_comes_from_carried_wheels_and_torch_stays(checkout: Checkout, machine: Path) -> None:
    checkout.carry("alpha", "1.0")
    checkout.carry("alpha", "3.0")
    checkout.carry("torch", "9.9")
    before = sorted(machine.rglob("*.dist-info"))
    outcome = checkout.bootstrap("--", "-m", "torchstone", "run", "--suite", "x")
    answer = json.loads(outcome.stdout)
    assert answer["arguments"] == ["run", "--suite", "x"]
    assert answer["alpha"] == "2.0"
    assert answer["torch"][0] == "2.11.0+cu130"
    assert answer["torch"][1].startswith(str(machine))
    assert sorted(path.name for path in checkout.deps.glob("*.py")) == ["alpha.py", "beta.py"]
    assert sorted(machine.rglob("*.dist-info")) == before
    assert not (checkout.folder / ".venv").exists()
    assert "keeping triton 3.6.0, though triton>=3.7,<3.9 is asked for" in outcome.stderr


def test_the_second_call_does_nothing(checkout: Checkout) -> None:
    checkout.bootstrap("--", "-m", "torchstone")
    before = {path: path.stat().st_mtime_ns for path in checkout.deps.rglob("*") if path.name != ".lock"}
    outcome = checkout.bootstrap("--", "-B", "-m", "torchstone")
    assert outcome.stderr == ""
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_without_a_command_it_says_how_to_call_python(checkout: Checkout) -> None:
    said = checkout.bootstrap().stdout.strip()
    outcome = checkout.call("sh", "-c", f"{said} -m torchstone")
    assert json.loads(outcome.stdout)["alpha"] == "2.0"


def test_a_part_that_nobody_carried_is_named_with_the_way_out(checkout: Checkout) -> None:
    (checkout.folder / "wheels/beta-1.0-py3-none-any.whl").unlink()
    checkout.carry("beta", tag="cp27-cp27m-win32")
    outcome = checkout.bootstrap("--", "-m", "torchstone")
    assert outcome.returncode == 1
    assert "beta>=1 not found in wheels/ for this Python, which has no pip" in outcome.stderr
    assert "run make wheels" in outcome.stderr
    assert "Traceback" not in outcome.stderr


def test_each_level_holds_the_one_below(checkout: Checkout) -> None:
    checkout.carry("prover")
    checkout.bootstrap("--for", "test")
    outcome = checkout.bootstrap("--for", "run", "--", "-c", "import alpha, prover")
    assert (outcome.returncode, outcome.stderr) == (0, "")


def test_failing_to_reach_a_higher_level_leaves_the_lower_one_working(checkout: Checkout) -> None:
    checkout.bootstrap("--for", "run")
    failed = checkout.bootstrap("--for", "check")
    assert "linter>=1, prover not found" in failed.stderr
    outcome = checkout.bootstrap("--", "-m", "torchstone")
    assert (outcome.returncode, outcome.stderr) == (0, "")


def test_a_carried_wheel_that_the_project_does_not_ask_for_is_laid_out_too(checkout: Checkout) -> None:
    checkout.carry("spare", requires=["something_nobody_carried"])
    assert checkout.bootstrap("--", "-c", "import spare").returncode == 0


def test_a_wheel_carried_later_is_noticed(checkout: Checkout) -> None:
    checkout.bootstrap()
    checkout.carry("alpha", "2.5", requires=["beta"])
    assert json.loads(checkout.bootstrap("--", "-m", "torchstone").stdout)["alpha"] == "2.5"


def test_a_changed_dependency_is_noticed_and_a_changed_linter_setting_is_not(checkout: Checkout) -> None:
    checkout.bootstrap()
    settings = checkout.folder / "pyproject.toml"
    settings.write_text(PYPROJECT + "[tool.ruff]\nline-length = 99\n")
    assert checkout.bootstrap().stderr == ""
    settings.write_text(PYPROJECT.replace("alpha>=1.5", "alpha>=2.1"))
    assert "alpha<3,>=2.1 not found" in checkout.bootstrap().stderr


def test_a_set_up_that_was_cut_short_begins_anew(checkout: Checkout) -> None:
    checkout.bootstrap()
    (checkout.deps / STAMP).write_text("unfinished\n")
    (checkout.deps / "half").mkdir()
    (checkout.deps / "alpha.py").write_text("raise RuntimeError('half written')")
    outcome = checkout.bootstrap("--", "-m", "torchstone")
    assert json.loads(outcome.stdout)["alpha"] == "2.0"
    assert not (checkout.deps / "half").exists()


def test_a_broken_wheel_stops_the_set_up_until_it_is_replaced(checkout: Checkout) -> None:
    path = checkout.folder / "wheels/beta-1.0-py3-none-any.whl"
    path.write_bytes(b"not a zip file")
    assert "beta-1.0-py3-none-any.whl is broken" in checkout.bootstrap().stderr
    checkout.carry("beta")
    assert checkout.bootstrap("--", "-m", "torchstone").returncode == 0


def test_a_set_up_waits_for_another_one_to_end(checkout: Checkout) -> None:
    checkout.deps.mkdir()
    command = [str(checkout.python), "tools/bootstrap.py", "--", "-m", "torchstone"]
    with (checkout.deps / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = subprocess.Popen(
            command,
            cwd=checkout.folder,
            env=clean_variables({}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert second.stderr is not None
        assert second.stderr.readline() == "set-up: waiting for another set-up of this folder\n"
        assert [path.name for path in checkout.deps.iterdir()] == [".lock"]
    out, _ = second.communicate()
    assert json.loads(out)["alpha"] == "2.0"


def test_a_set_up_called_from_inside_its_own_environment_is_the_same(checkout: Checkout) -> None:
    checkout.bootstrap()
    inside = os.pathsep.join([str(checkout.folder / "src"), str(checkout.deps), "theirs"])
    outcome = checkout.bootstrap(PYTHONPATH=inside)
    assert outcome.stderr == ""
    assert outcome.stdout.startswith(f"PYTHONPATH={inside} ")


def test_a_venv_of_somebody_else_is_left_alone(checkout: Checkout, machine: Path) -> None:
    bare = checkout.folder / ".venv"
    venv.create(bare, with_pip=False, symlinks=True)
    before = sorted(bare.rglob("*"))
    outcome = checkout.call(str(bare / "bin/python"), "tools/bootstrap.py")
    assert outcome.returncode == 1
    assert "was not made by this set-up" in outcome.stderr
    assert "make PYTHON=.venv/bin/python" in outcome.stderr
    assert sorted(bare.rglob("*")) == before


# The commands -------------------------------------------------------------------------------------------------


@needs_make
def test_make_run_sets_up_and_judges_the_smoke_suite(checkout: Checkout) -> None:
    outcome = checkout.call("make", "--silent", "run", f"PYTHON={checkout.python}")
    assert json.loads(outcome.stdout)["arguments"] == ["run", "--suite", "smoke", "--backend", "aten"]


@needs_make
def test_make_run_takes_other_arguments(checkout: Checkout) -> None:
    outcome = checkout.call("make", "--silent", "run", f"PYTHON={checkout.python}", "ARGS=compare 'a b' c")
    assert json.loads(outcome.stdout)["arguments"] == ["compare", "a b", "c"]


def fake_python(folder: Path, name: str, body: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{body}\n")
    (folder / name).chmod(0o755)


@needs_make
def test_an_old_python3_is_passed_over_for_a_newer_one(checkout: Checkout, tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    for old in ("python3", "python3.13"):
        fake_python(programs, old, "exit 1")
    fake_python(programs, "python3.12", f'exec "{checkout.python}" "$@"')
    outcome = checkout.call("make", "--silent", "run", PATH=f"{programs}:{os.environ['PATH']}")
    assert json.loads(outcome.stdout)["alpha"] == "2.0"


@needs_make
def test_no_python_that_is_new_enough_is_said_plainly(checkout: Checkout, tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    for old in ("python3", "python3.13", "python3.12", "python3.11"):
        fake_python(programs, old, "exit 1")
    outcome = checkout.call("make", "run", PATH=f"{programs}:{os.environ['PATH']}")
    assert outcome.returncode != 0
    assert "No Python 3.11 or newer on PATH" in outcome.stderr


@needs_make
def test_make_clean_removes_what_the_set_up_made_and_nothing_of_others(checkout: Checkout) -> None:
    checkout.bootstrap()
    (checkout.folder / "tests").mkdir()
    (checkout.folder / ".venv").mkdir()
    assert checkout.call("make", "clean").returncode == 0
    assert not checkout.deps.exists()
    assert (checkout.folder / ".venv").exists()
    assert (checkout.folder / "wheels").exists()


@needs_make
def test_make_help_names_every_target(checkout: Checkout) -> None:
    said = checkout.call("make", "help").stdout
    assert all(f"  {target} " in said for target in ("run", "test", "check", "wheels", "clean"))
