"""Messages that newcomers meet: each says what was asked, what there is, and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchstone.cli import main

KERNELS = {"relu": "def relu_kernel_impl(self):\n    return self.clamp(min=0)\n"}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, the current one, with a folder of kernels in it."""
    monkeypatch.chdir(tmp_path)
    for name, text in KERNELS.items():
        (tmp_path / "kernels" / name).mkdir(parents=True)
        (tmp_path / "kernels" / name / f"{name}.py").write_text(text)
    return tmp_path


def run_of_missing_kernels(*options: str) -> int:
    """A run in which every kernel is missing, so that no judge is started."""
    command = ["run", "--backend", "directory", "--kernels-dir", "kernels", "--ops", "add", "--device", "cpu"]
    return main([*command, "--topn", "1", *options])


def test_a_missing_kernel_says_which_folder_was_looked_for(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_of_missing_kernels() == 1
    told = capsys.readouterr().out
    assert (
        "missing: backend 'directory' offers nothing for aten.add.Tensor: kernels has no folder add or add__Tensor"
        in told
    )
    (here / "kernels" / "add").mkdir()
    assert run_of_missing_kernels() == 1
    told = capsys.readouterr().out
    assert "offers nothing for aten.add.Tensor: add: no kernel file; expected add.py" in told


def test_another_configuration_is_told_in_the_options_that_were_typed(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_of_missing_kernels("--run-id", "mine", "--no-measure") == 1
    capsys.readouterr()
    again = ["--run-id", "mine", "--resume", "--ops", "add,relu", "--topn", "2", "--require-authored-kernel"]
    assert main(["run", *again]) == 2
    told = capsys.readouterr().err
    assert "--ops was add, now add,relu" in told
    assert "--topn was 1, now 2" in told
    assert "--require-authored-kernel was not given, now given" in told
    assert "measured" not in told


@pytest.mark.parametrize(
    "command",
    [
        ["show", "mien"],
        ["run", "--resume", "--run-id", "mien"],
        ["run", "--last-failed", "mien"],
        ["generate", "--resume", "--run-id", "mien", "--output-dir", "torchstone_runs"],
        ["replay", "mien"],
    ],
    ids=" ".join,
)
def test_a_run_that_does_not_exist_is_told_with_those_that_do(
    here: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("mine", "other"):
        run_of_missing_kernels("--run-id", name, "--quiet")
    capsys.readouterr()
    assert main(command) == 2
    told = capsys.readouterr().err
    assert "error: unknown run 'mien': torchstone_runs has no such folder. Did you mean 'mine'? Runs there: " in told
    assert sorted(told.strip().rpartition("Runs there: ")[2].rstrip(".").split(", ")) == ["mine", "other"]


def test_without_any_run_the_message_says_so(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "mine"]) == 2
    assert "error: unknown run 'mine': torchstone_runs has no such folder. There is no run." in capsys.readouterr().err
