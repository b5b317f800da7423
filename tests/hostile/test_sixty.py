"""One run of sixty jobs, every third kernel bad in a different way, through the real command line.

The good ones must be judged right, each bad one must get its own verdict and stage, nothing may be left behind.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from pathlib import Path

import pytest

from hostile.command import RunFolder, run_sixty
from hostile.kernels import BAD, Bad

pytestmark = pytest.mark.adversary


@pytest.fixture(scope="module")
def sixty(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[RunFolder, dict[str, Bad], subprocess.CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("sixty")
    before = snapshot()
    run, bad = RunFolder.prepare(folder)
    finished = run_sixty(run)
    assert snapshot() == before, "something of the machine was changed outside the scratch folder"
    return run, bad, finished


def snapshot() -> dict[str, list[str]]:
    """Names in the places that a kernel would reach for; in /tmp, where others write too, what a worker would leave."""
    places = ("/", "/etc", "/dev/shm", str(Path.home()), "/usr/local/bin")
    names = {place: sorted(os.listdir(place)) for place in places}
    return names | {"/tmp": sorted(entry.name for entry in os.scandir("/tmp") if _by_a_worker(entry))}


def _by_a_worker(entry: os.DirEntry[str]) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return entry.name.startswith("fill") or entry.stat(follow_symlinks=False).st_uid >= 1_000_000_000
    return False


def test_the_run_says_that_some_kernels_failed(sixty) -> None:  # type: ignore[no-untyped-def]
    _, _, finished = sixty
    assert finished.returncode == 1, finished.stderr
    assert "Traceback" not in finished.stderr


def test_every_job_has_exactly_one_record(sixty) -> None:  # type: ignore[no-untyped-def]
    run, _, _ = sixty
    records = run.records()
    assert len(records) == 60
    assert len({record["job_key"] for record in records}) == 60


def test_every_good_kernel_agrees(sixty) -> None:  # type: ignore[no-untyped-def]
    run, bad, _ = sixty
    wrong = {
        record["case"]["operator"]: record["verdict"]
        for record in run.records()
        if record["case"]["operator"] not in bad and record["verdict"]["type"] != "agrees"
    }
    assert wrong == {}


@pytest.mark.parametrize("way", BAD, ids=lambda way: way.name)
def test_each_bad_kernel_gets_its_verdict_and_stage(sixty, way: Bad) -> None:  # type: ignore[no-untyped-def]
    run, bad, _ = sixty
    operator = next(operator for operator, given in bad.items() if given == way)
    (record,) = [record for record in run.records() if record["case"]["operator"] == operator]
    verdict = record["verdict"]
    assert (verdict["type"], verdict.get("stage")) == (way.verdict, way.stage), verdict
    entry = f"{operator.removeprefix('aten.').replace('.', '__')}_kernel_impl"
    assert way.says.format(entry=entry) in json.dumps(verdict) + json.dumps(record["log_tail"])


def test_no_log_is_longer_than_its_limit(sixty) -> None:  # type: ignore[no-untyped-def]
    run, _, _ = sixty
    assert max(len(record["log_tail"]) for record in run.records()) <= 8 << 10


def test_no_process_is_left_behind(sixty) -> None:  # type: ignore[no-untyped-def]
    run, _, _ = sixty
    assert run.wait_for_end() == []
