"""The default memory limit of a benchmark: the machine's memory, or what the control groups of this process allow."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from torchstone.harness.host_memory_limit import default_limit_bytes

MACHINE_BYTES = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
MIB = 1 << 20


@pytest.mark.parametrize(
    ("own_groups", "limits", "expected_bytes"),
    [
        ("0::/\n", {"memory.max": 64 * MIB}, 48 * MIB),
        ("0::/\n", {"memory.max": "max"}, int(0.75 * MACHINE_BYTES)),
        ("0::/slurm/job/step\n", {"slurm/job/memory.max": 40 * MIB, "slurm/job/step/memory.max": "max"}, 30 * MIB),
        ("4:memory:/job\n3:cpu:/\n", {"memory/job/memory.limit_in_bytes": 20 * MIB}, 15 * MIB),
        ("0::/not/visible/here\n", {"memory.max": 8 * MIB}, 6 * MIB),
        ("no control group", {}, int(0.75 * MACHINE_BYTES)),
    ],
    ids=["container", "unlimited", "batch job", "version 1", "outside of the namespace", "unreadable"],
)
def test_the_least_limit_of_the_groups_around_the_process_counts(
    own_groups: str, limits: dict[str, int | str], expected_bytes: int, tmp_path: Path
) -> None:
    (tmp_path / "own").write_text(own_groups)
    for name, limit in limits.items():
        file = tmp_path / "groups" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{limit}\n")
    assert default_limit_bytes(tmp_path / "own", tmp_path / "groups") == expected_bytes
