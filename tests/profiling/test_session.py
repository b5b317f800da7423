"""From a request to a folder, with fake profilers behind it."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchstone import registry
from torchstone.cli.profile import exit_code
from torchstone.profiling import FakeProfiler, ProfileRequest, Subject, profile
from torchstone.schema import Manifest, Profile, ProfiledKernel, ProfilerResult, decode

SEEN = ProfilerResult("seen", "profiled", files=("seen.txt",), kernels=(ProfiledKernel("k", "kernel", 5, 1000),))
ABSENT = ProfilerResult("gone", "absent", "not on this machine. Install it.")
FAILED = ProfilerResult("fails", "failed", "the kernel failed: no")

fakes = {result.profiler: FakeProfiler(result) for result in (SEEN, ABSENT, FAILED)}


class Cautious(FakeProfiler):
    def __init__(self) -> None:
        super().__init__(SEEN)

    def caution(self, subject: Subject) -> str:
        return f"about to run on {subject.device.label}"


def seen() -> FakeProfiler:
    return fakes["seen"]


def gone() -> FakeProfiler:
    return fakes["gone"]


def fails() -> FakeProfiler:
    return fakes["fails"]


class Refused(FakeProfiler):
    def __init__(self) -> None:
        super().__init__(SEEN)

    def profile(self, subject: Subject) -> ProfilerResult:
        raise OSError(28, "No space left on device")


@pytest.fixture(autouse=True)
def _fakes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, attribute in {
        "seen": "seen",
        "gone": "gone",
        "fails": "fails",
        "cautious": "Cautious",
        "refused": "Refused",
    }.items():
        monkeypatch.setitem(registry.profilers._builtins, name, f"{__name__}:{attribute}")
    monkeypatch.chdir(tmp_path)


def ask(*profilers: str, told: list[str] | None = None) -> tuple[Path, Profile]:
    request = ProfileRequest(kernel="relu", profilers=profilers, device="cpu", calls=7)
    return profile(request, (told if told is not None else []).append)


def test_the_folder_holds_the_profile_the_source_and_the_circumstances() -> None:
    folder, made = ask("seen")
    assert folder.parent == Path("torchstone_profiles")
    assert folder.name.startswith("relu__default_")
    assert decode((folder / "profile.json").read_bytes(), Profile) == made
    manifest = decode((folder / "manifest.json").read_bytes(), Manifest)
    assert manifest.key == made.manifest_key
    assert (manifest.configuration["device"], manifest.configuration["calls"]) == ("cpu", 7)
    assert (folder / "implementation.json").exists()
    assert fakes["seen"].subjects[-1].folder == folder
    assert (made.calls, made.device, made.kind) == (7, "cpu", "profile")


def test_two_profiles_of_one_second_have_two_folders() -> None:
    assert len({ask("seen")[0] for _ in range(3)}) == 3


def test_an_absent_tool_is_told_of_and_the_rest_is_done() -> None:
    told: list[str] = []
    _, made = ask("gone", "seen", "gone", told=told)
    assert told == ["gone: not on this machine. Install it."]
    assert [result.status for result in made.results] == ["absent", "profiled"], "each profiler is asked once"


def test_a_caution_is_told_before_the_kernel_runs() -> None:
    told: list[str] = []
    ask("cautious", told=told)
    assert told == ["cautious: about to run on cpu"]


def test_a_machine_that_refuses_costs_one_profiler() -> None:
    told: list[str] = []
    _, made = ask("refused", "seen", told=told)
    assert [result.status for result in made.results] == ["unavailable", "profiled"]
    assert "No space left on device" in told[0]


@pytest.mark.parametrize(
    ("profilers", "code"), [(("seen", "fails", "gone"), 0), (("fails", "gone"), 1), (("gone",), 3)]
)
def test_exit_codes(profilers: tuple[str, ...], code: int) -> None:
    assert exit_code(ask(*profilers)[1]) == code
