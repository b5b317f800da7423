"""What the zygote does for Triton beforehand: it may fail, but leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from torchstone.worker import compiler_warm_up

WARM = """
import os, sys
from unittest import mock
from torchstone.worker import compiler_warm_up
import torch, triton
from triton.runtime.cache import triton_key
with mock.patch.object(compiler_warm_up, "_capability", return_value=90):
    compiler_warm_up.warm_up(sys.argv[1])
print(len(os.listdir("/proc/self/task")), len(os.listdir(sys.argv[1])), os.environ.get("TRITON_CACHE_DIR"))
print(triton_key.cache_info().currsize)
"""


def test_the_compiler_is_warm_in_a_process_with_one_thread_and_no_files(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    environment = {**os.environ, **threads, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    environment.pop("TRITON_CACHE_DIR", None)
    done = subprocess.run(
        [sys.executable, "-c", WARM, str(tmp_path)], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.split() == ["1", "0", "None", "1"], done.stderr


def test_what_cannot_be_done_beforehand_is_left_to_the_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(folder: str) -> None:
        raise ImportError("no such module")

    monkeypatch.setattr(compiler_warm_up, "_build_driver_module", fail)
    monkeypatch.setattr(compiler_warm_up, "_compile_kernel", fail)
    compiler_warm_up.warm_up(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_worker_finds_the_files_in_its_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler_warm_up.write_triton_cache(tmp_path / "none")
    assert not (tmp_path / "none").exists()
    monkeypatch.setattr(compiler_warm_up, "_triton_cache_files", {"key/module.so": b"built"})
    compiler_warm_up.write_triton_cache(tmp_path / "triton")
    assert (tmp_path / "triton" / "key" / "module.so").read_bytes() == b"built"


def test_a_worker_finds_what_judges_have_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler_warm_up, "_torch_kernel_files", {})
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    for age, name in enumerate(("latest", "older", "oldest")):
        (theirs / name).write_bytes(name.encode())
        os.utime(theirs / name, (1000 - age, 1000 - age))
    monkeypatch.setattr(compiler_warm_up, "_MOST_CACHE_BYTES", len("latest" + "older"))
    monkeypatch.setenv("PYTORCH_KERNEL_CACHE_PATH", str(theirs))
    compiler_warm_up.read_torch_kernels()
    compiler_warm_up.write_torch_cache(tmp_path / "kernels")
    assert {path.name: path.read_text() for path in (tmp_path / "kernels").iterdir()} == {
        "latest": "latest",
        "older": "older",
    }


def test_no_folder_of_compiled_kernels_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_KERNEL_CACHE_PATH", str(tmp_path / "none"))
    compiler_warm_up.read_torch_kernels()
    monkeypatch.delenv("PYTORCH_KERNEL_CACHE_PATH")
    compiler_warm_up.read_torch_kernels()
