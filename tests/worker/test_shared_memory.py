"""Whether a device's memory can be shared, with a driver that refuses. No GPU."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
import torch

from torchstone.errors import InfrastructureError, IsolationUnavailableError
from torchstone.judge_process.process import JudgeSettings, _require_sharing
from torchstone.protocol import shared_memory
from torchstone.schema import Limits

CUDA = torch.device("cuda", 0)


class ScriptedDriver:
    """A driver of which one call fails."""

    fails = ""
    freed = 0

    def allocate(self, size_bytes: int) -> int:
        return self._answer("allocate", size_bytes)

    def export(self, pointer: int) -> str:
        return str(self._answer("export", pointer))

    def free(self, pointer: int) -> None:
        type(self).freed += 1

    def _answer(self, what: str, value: int) -> int:
        if self.fails == what:
            raise InfrastructureError(f"{what} failed with CUDA driver error 801.")
        return value


@pytest.fixture(autouse=True)
def _driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(shared_memory, "Driver", ScriptedDriver)
    monkeypatch.setattr(ScriptedDriver, "fails", "")
    monkeypatch.setattr(ScriptedDriver, "freed", 0)
    shared_memory.can_share.cache_clear()
    yield
    shared_memory.can_share.cache_clear()


@pytest.mark.parametrize(("fails", "expected"), [("", True), ("export", False)])
def test_a_device_shares_its_memory_unless_the_export_is_refused(
    monkeypatch: pytest.MonkeyPatch, fails: str, expected: bool
) -> None:
    monkeypatch.setattr(ScriptedDriver, "fails", fails)
    assert shared_memory.can_share(CUDA) is expected
    assert ScriptedDriver.freed == 1


def test_a_device_that_fails_otherwise_is_not_taken_for_one_that_shares_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ScriptedDriver, "fails", "allocate")
    with pytest.raises(InfrastructureError, match="allocate failed"):
        shared_memory.can_share(CUDA)
    monkeypatch.setattr(ScriptedDriver, "fails", "")
    assert shared_memory.can_share(CUDA) is True


def test_strict_isolation_is_refused_where_memory_cannot_be_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = JudgeSettings("cuda", "cuda:0", "GPU-1", "strict", Limits(), 1, "key")
    _require_sharing(settings, CUDA)
    shared_memory.can_share.cache_clear()
    monkeypatch.setattr(ScriptedDriver, "fails", "export")
    _require_sharing(msgspec.structs.replace(settings, isolation="best"), CUDA)
    _require_sharing(msgspec.structs.replace(settings, results="copied"), CUDA)
    with pytest.raises(IsolationUnavailableError, match="CUDA IPC"):
        _require_sharing(settings, CUDA)
