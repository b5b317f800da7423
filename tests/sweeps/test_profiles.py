"""Which calls of a sweep are profiled."""

from __future__ import annotations

import pytest

from sweeps.made_sweep_records import point, record
from torchstone.errors import UsageError
from torchstone.sweeps.profile_request import ProfiledCall
from torchstone.sweeps.profile_sweep import chosen_calls, profilers_named

SMALL, LARGE = point(batch=1), point(batch=2)
RECORDS = (
    record(LARGE, {"PyTorch": 2.0}, {"Triton": "wrong: of course"}),
    record(SMALL, {"PyTorch": 1.0, "Triton": 1.0}),
)


def test_one_call_for_each_implementation_is_that_at_its_largest_timed_point() -> None:
    assert set(chosen_calls(RECORDS, every_point=False)) == {
        ProfiledCall(LARGE, "PyTorch"),
        ProfiledCall(SMALL, "Triton"),
    }


def test_every_point_means_every_time_that_was_taken() -> None:
    found = chosen_calls(RECORDS, every_point=True)
    assert found == (ProfiledCall(LARGE, "PyTorch"), ProfiledCall(SMALL, "PyTorch"), ProfiledCall(SMALL, "Triton"))


def test_profilers_are_known_by_name() -> None:
    assert profilers_named(["ncu", "torch", "NCU"]) == ("ncu", "torch")
    with pytest.raises(UsageError, match="Did you mean 'nsys'"):
        profilers_named(["nsyss"])
