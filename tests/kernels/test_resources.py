"""The report of registers and spills, with compilers that answer at once."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from torchstone.kernels import resources


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


def test_rows_of_cuda_come_from_its_own_module(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "torchstone.kernels.cuda_resources"
    module = ModuleType(name)
    module.cuda_resources = lambda: [("silu", "sm_80", 20, 0)]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(resources.importlib.util, "find_spec", lambda asked: asked == name)
    monkeypatch.setattr(resources, "what_is_missing", lambda impl: None)
    assert resources._cuda_rows() == [("cuda silu", "sm_80", 20, 0)]
