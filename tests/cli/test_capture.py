"""``torchstone capture`` with real programs: their arguments, their exit codes, their interrupts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from torchstone.cli.capture import take_apart
from torchstone.errors import UsageError
from torchstone.suites.captured import read_captured

SOURCE = Path(__file__).resolve().parents[2] / "src"
PROGRAM = """
import sys, torch
from beside import number
print(sys.argv[1:], __name__, flush=True)
torch.ones(number).relu()
if sys.argv[1] == "wait":
    print("waiting", flush=True)
    while True:
        torch.ones(2).exp()
if sys.argv[1] == "die":
    import os
    os._exit(9)
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs" / "program.py").write_text(PROGRAM)
    (tmp_path / "programs" / "beside.py").write_text("number = 5\n")
    return tmp_path


def start(*arguments: str, cwd: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "torchstone", "capture", *arguments]
    return subprocess.Popen(
        command,
        cwd=cwd,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def test_a_script_runs_as_ever_and_its_exit_code_is_passed_on(folder: Path) -> None:
    process = start(
        "-o", "c.jsonl", "--ops", "relu", "--", sys.executable, "programs/program.py", "7", "--x", cwd=folder
    )
    out, err = process.communicate(timeout=120)
    assert process.returncode == 7, err
    assert out == "['7', '--x'] __main__\n"
    assert "c.jsonl: 1 call, 1 unique, 1 case of 1 operator, 0 calls excluded" in err
    assert [case.operator for case in read_captured(folder / "c.jsonl").cases] == ["aten.relu.default"]


def test_an_interrupt_keeps_what_was_recorded(folder: Path) -> None:
    process = start("--ops", "relu,exp", "--", sys.executable, "programs/program.py", "wait", cwd=folder)
    assert process.stdout is not None
    while "waiting" not in (line := process.stdout.readline()):
        assert line, process.stderr and process.stderr.read()
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "interrupted; what was recorded until then is kept" in err
    assert len(read_captured(folder / "calls.jsonl").cases) >= 1


def test_a_program_that_leaves_no_time_to_write_is_said(folder: Path) -> None:
    process = start("--", sys.executable, "programs/program.py", "die", cwd=folder)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 9
    assert "ended before its calls could be written" in err
    assert not (folder / "calls.jsonl").exists()


@pytest.mark.parametrize(
    ("command", "options", "kind", "target", "arguments"),
    [
        (["{python}", "{script}", "-x"], (), "script", "{script}", ("-x",)),
        (["{python}", "-u", "-W", "ignore", "-m", "timeit", "1"], ("-u", "-W", "ignore"), "module", "timeit", ("1",)),
        (["{python}", "-c", "pass"], (), "code", "pass", ()),
        (["{script}", "a"], (), "script", "{script}", ("a",)),
    ],
)
def test_a_command_is_taken_apart(
    command: list[str], options: tuple[str, ...], kind: str, target: str, arguments: tuple[str, ...]
) -> None:
    names = {"python": sys.executable, "script": __file__}
    program = take_apart([word.format(**names) for word in command])
    assert program == (sys.executable, options, kind, target.format(**names), arguments)


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["ls"], "is not a Python interpreter"),
        (["nowhere"], "is not a Python interpreter"),
        (["{python}"], "no program"),
        (["{python}", "no.py"], "no file"),
    ],
)
def test_what_cannot_be_run_is_said(command: list[str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        take_apart([word.format(python=sys.executable) for word in command])
