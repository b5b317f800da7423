"""How long a run took."""

from __future__ import annotations

import msgspec
import pytest

from made_records import record
from torchstone.reports.run_circumstances import circumstances_of
from torchstone.schema import Hardware, Manifest, PlannedRun, RunDescription, RunPart, Software

SECOND = 10**9
MANIFEST = Manifest(
    hardware=Hardware("a processor", 2, 16 << 30, ()),
    software=Software("0.1.0", "3.12.3", "linux", {}, None, None),
    git=None,
    environment={},
    seeds={},
    configuration={},
)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([RunPart(100 * SECOND, ended_unix_ns=134 * SECOND)], 34.0),
        ([RunPart(100 * SECOND)], 7.0),
        ([RunPart(100 * SECOND), RunPart(200 * SECOND, ended_unix_ns=205 * SECOND)], 12.0),
    ],
    ids=["stopped long after its last record", "killed", "killed and resumed"],
)
def test_a_part_lasts_until_its_end_or_its_last_record(parts: list[RunPart], expected: float) -> None:
    only = msgspec.structs.replace(record(), finished_unix_ns=107 * SECOND)
    circumstances = circumstances_of(RunDescription(MANIFEST, PlannedRun((), tuple(parts))), [only])
    assert circumstances.duration_seconds == expected
