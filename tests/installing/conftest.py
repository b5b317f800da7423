"""Folders of kernels for these tests, and a dispatcher that is as it was before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from torchstone.installing import dispatcher_registrations

WriteKernel = Callable[..., Path]


@pytest.fixture
def write_kernel(tmp_path: Path) -> WriteKernel:
    """``write_kernel("relu", "return x.clamp(min=0)", "x")`` -> the folder of kernels."""

    def write(folder: str, body: str, parameters: str = "*args, **kwargs", root: str = "kernels") -> Path:
        place = tmp_path / root / folder
        place.mkdir(parents=True, exist_ok=True)
        lines = "\n".join(f"    {line}" for line in body.splitlines())
        text = f"import torch\n\n\ndef {folder}_kernel_impl({parameters}):\n{lines}\n"
        (place / f"{folder}.py").write_text(text)
        return place.parent

    return write


@pytest.fixture(autouse=True)
def _nothing_stays_installed() -> Iterator[None]:
    yield
    assert dispatcher_registrations._slots == {}
    assert torch.equal(torch.relu(torch.tensor([-1.0, 2.0])), torch.tensor([0.0, 2.0]))
