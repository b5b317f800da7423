"""A job that lacks memory beside other judges gets the device to itself, once."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from torchstone.judge_process.job_retries import _take_device_alone
from torchstone.judge_process.measuring_lane import MeasuringLane


def resources(lane: MeasuringLane, device: str, shares_device: bool) -> Any:
    made = SimpleNamespace(device=torch.device(device), shares_device=shares_device, lane=lane, watched=0)
    made.shortage = SimpleNamespace(can_watch=device == "cuda")
    made.memory = SimpleNamespace(hold_everything=lambda: made.reserved.append(lane.is_exclusive))
    made.reserved = []
    made.watch_memory = lambda: setattr(made, "watched", made.watched + lane.is_exclusive)
    return made


def test_the_lane_is_taken_once_and_given_back(tmp_path: Path) -> None:
    lane, other = MeasuringLane("device", tmp_path), MeasuringLane("device", tmp_path)
    with ExitStack() as alone:
        assert _take_device_alone(resources(lane, "cuda", True), alone)
        assert lane.is_exclusive
        with lane.shared():
            assert lane.is_exclusive, "a judge inside it does not leave it"
        assert not _take_device_alone(resources(lane, "cuda", True), alone)
    assert not lane.is_exclusive
    with other.exclusive():
        assert other.is_exclusive


def test_who_shares_no_memory_is_not_tried_again(tmp_path: Path) -> None:
    lane = MeasuringLane("device", tmp_path)
    with ExitStack() as alone:
        assert not _take_device_alone(resources(lane, "cpu", True), alone)


def test_a_judge_that_has_the_device_to_itself_tries_again_with_what_it_kept(tmp_path: Path) -> None:
    lane = MeasuringLane("device", tmp_path)
    with ExitStack() as alone:
        alone_here = resources(lane, "cuda", False)
        assert _take_device_alone(alone_here, alone)
        assert not _take_device_alone(alone_here, alone)
        assert alone_here.reserved == [False], "who holds the lane must not wait for memory"
        assert alone_here.watched == 1, "memory is watched once the device is its own"
