"""The report of registers and spills: its form with rows that are given, and real rows of one CUDA kernel."""

from __future__ import annotations

import pytest

from torchstone.kernels import cuda_resources, resources
from torchstone.kernels.catalogue import what_is_missing


def test_one_table_holds_both_languages_and_a_spill_is_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(resources, "_triton_rows", lambda _: [("triton gelu: _gelu()", "sm_90", 31, 0)])
    monkeypatch.setattr(resources, "_cuda_rows", lambda: [("cuda gelu: gelu", "sm_90", 40, 8)])
    assert resources.main([]) == 1
    told = capsys.readouterr().out.splitlines()
    assert [len(line) for line in told[:4]] == [len(told[0])] * 4
    assert told[-1] == "2 compilations, 1 spilling: cuda gelu: gelu"
    assert resources.main(["--impl", "triton"]) == 0


def test_what_cannot_be_compiled_here_is_one_notice(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(resources, "what_is_missing", lambda impl: "not installed. Install it.")
    assert resources.main(["--impl", "triton"]) == 2
    assert capsys.readouterr().err == "notice: implementation 'triton': not installed. Install it.\n"


@pytest.mark.skipif(what_is_missing("cuda") is not None, reason="needs NVRTC or nvcc")
def test_rows_of_cuda_are_those_of_the_compiler(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = next(cuda_resources.variants())
    monkeypatch.setattr(cuda_resources, "variants", lambda: iter([first]))
    assert resources.main(["--impl", "cuda"]) == 0
    *rows, last = capsys.readouterr().out.splitlines()[2:]
    assert [row.split("|")[2].strip() for row in rows] == list(cuda_resources.ARCHITECTURES)
    assert all(f"| cuda {first.name} " in row and int(row.split("|")[3]) > 0 for row in rows)
    assert last == "3 compilations, 0 spilling"
