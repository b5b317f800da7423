"""Kernels that a model wrote are profiled in the sandbox, unless the user allows more."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchstone.cli import main
from torchstone.errors import UsageError
from torchstone.profiling.request import ProfileRequest, check


@pytest.mark.parametrize("profiler", ["ncu", "nsys"])
def test_profilers_that_run_the_kernel_outside_the_sandbox_are_refused(profiler: str) -> None:
    request = ProfileRequest(kernel="relu", profilers=("torch", profiler), only_sandboxed=True)
    with pytest.raises(UsageError, match=f"profiler '{profiler}' runs the kernel outside the sandbox"):
        check(request)


def test_the_torch_profiler_is_not_refused() -> None:
    assert check(ProfileRequest(kernel="relu", only_sandboxed=True)).profilers == ("torch",)


@pytest.fixture
def generated(tmp_path: Path) -> Path:
    kernel = tmp_path / "generated_kernels" / "mine" / "relu" / "relu_attempt_1.py"
    kernel.parent.mkdir(parents=True)
    (kernel.parents[1] / "generation.json").write_text("{}")
    kernel.write_text("def relu_kernel_impl(x):\n    return x.clamp(min=0)\n")
    return kernel


def test_a_kernel_in_a_run_of_generation_is_known_to_be_a_models(
    generated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["profile", str(generated), "--with", "ncu", "--device", "cpu"]) == 2
    assert "Use torch, or allow it with --allow-unsandboxed-profilers." in capsys.readouterr().err


def test_a_folder_in_a_run_of_generation_is_known_too(generated: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = ["--kernels-dir", str(generated.parents[1])]
    assert main(["profile", "relu", *folder, "--with", "nsys", "--device", "cpu"]) == 2
    assert "outside the sandbox" in capsys.readouterr().err


def test_the_user_may_allow_it(generated: Path, tmp_path: Path) -> None:
    where = ["--device", "cpu", "--output-dir", str(tmp_path / "profiles")]
    code = main(["profile", str(generated), "--with", "ncu", "--allow-unsandboxed-profilers", *where])
    assert code == 3  # a CPU has nothing for it to see
