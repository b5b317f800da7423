"""Manifests and devices: what the machine is asked, and what is never written down."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from torchstone.errors import DeviceUnavailableError, UsageError
from torchstone.executors import machine
from torchstone.runs import devices, manifest
from torchstone.runs.request import RunRequest, canonical_dtypes, check, configuration
from torchstone.schema import Deadlines, Gpu, Manifest, decode, difference, encode


def test_a_manifest_survives_its_own_encoding() -> None:
    made = manifest.collect(configuration(RunRequest(suite="smoke"), "cpu"))
    again = decode(encode(made), Manifest)
    assert again == made
    assert again.key == made.key
    assert made.hardware.cpu_cores >= 1
    assert made.hardware.memory_bytes > 1 << 20
    assert made.software.packages["torch"]
    assert made.configuration["device"] == "cpu"


def test_collecting_a_manifest_does_not_import_torch() -> None:
    script = "import sys; from torchstone.runs.manifest import collect; collect({}); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_two_manifests_differ_by_dotted_field() -> None:
    first = manifest.collect({"effort": "quick", "deadlines": {"load_seconds": 1.0}})
    second = manifest.collect({"effort": "quick", "deadlines": {"load_seconds": 2.0}})
    assert difference(first, second) == {"configuration.deadlines.load_seconds": (1.0, 2.0)}


def test_only_telling_variables_are_kept_and_never_a_secret() -> None:
    found = manifest.telling_variables(
        {
            "OMP_NUM_THREADS": "2",
            "TRITON_CACHE_DIR": "/t",
            "TORCHINDUCTOR_MAX_AUTOTUNE": "1",
            "CUDA_VISIBLE_DEVICES": "0",
            "PYTORCH_API_KEY": "no",
            "TORCH_HUB_TOKEN": "no",
            "TRITON_secret": "no",
            "ANTHROPIC_API_KEY": "no",
            "HOME": "/root",
        }
    )
    assert sorted(found) == [
        "CUDA_VISIBLE_DEVICES",
        "OMP_NUM_THREADS",
        "TORCHINDUCTOR_MAX_AUTOTUNE",
        "TRITON_CACHE_DIR",
    ]
    assert "no" not in found.values()


def _git(*arguments: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", *identity, *arguments], check=True, capture_output=True)


def test_git_tells_commit_branch_and_dirt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert manifest.git() is None
    _git("init", "-b", "trunk")
    Path("a").write_text("1")
    _git("add", "a")
    _git("commit", "-m", "first")
    clean = manifest.git()
    assert clean is not None
    assert (clean.branch, clean.dirty, len(clean.commit)) == ("trunk", False, 40)
    Path("a").write_text("2")
    dirty = manifest.git()
    assert dirty is not None
    assert dirty.dirty


def test_a_machine_without_git_has_no_git(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert manifest.git() is None


@pytest.mark.parametrize(
    ("text", "cuda"),
    [
        ("cuda: Optional[str] = None", None),
        ("cuda: Optional[str] = '13.0'", "13.0"),
        ('cuda = "12.8"', "12.8"),
        ("", None),
    ],
)
def test_the_cuda_version_is_read_from_torchs_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, cuda: str | None
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise RuntimeError('imported')")
    (tmp_path / "torch" / "version.py").write_text(f"__version__ = '2'\n{text}\n")
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    assert machine.torch_cuda() == cuda


def pretend(monkeypatch: pytest.MonkeyPatch, gpus: int, cuda: str | None, visible: int | None = None) -> None:
    uuids = [f"GPU-{number}" for number in range(gpus if visible is None else visible)]
    seen = tuple(Gpu(number, "H200", f"GPU-{number}", 1) for number in range(gpus))
    monkeypatch.setattr(devices, "nvidia", lambda: machine.Nvidia(seen, "1", "" if gpus else "the driver sees no GPU"))
    monkeypatch.setattr(devices, "torch_cuda", lambda: cuda)
    monkeypatch.setattr("torchstone.executors.devices.visible_uuids", lambda environment: uuids)
    monkeypatch.setattr(devices, "visible_uuids", lambda environment: uuids)


def test_auto_takes_a_gpu_that_torch_can_use(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, gpus=2, cuda="13.0")
    assert devices.resolve_device("auto") == "cuda"
    assert devices.resolve_device("cuda:1") == "cuda:1"
    assert devices.resolve_device("cpu") == "cpu"


@pytest.mark.parametrize(("gpus", "cuda", "visible"), [(0, "13.0", 0), (1, None, 1), (1, "13.0", 0)])
def test_auto_falls_back_to_the_cpu_where_cuda_cannot_be(
    monkeypatch: pytest.MonkeyPatch, gpus: int, cuda: str | None, visible: int
) -> None:
    pretend(monkeypatch, gpus, cuda, visible)
    assert devices.resolve_device("auto") == "cpu"
    with pytest.raises(DeviceUnavailableError, match=r"device 'cuda' is not available: .* Use --device cpu"):
        devices.resolve_device("cuda")


def test_a_device_out_of_range_names_those_that_are_here(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, gpus=2, cuda="13.0")
    with pytest.raises(DeviceUnavailableError, match="cuda:1"):
        devices.resolve_device("cuda:9")


@pytest.mark.parametrize("asked", ["gpu", "cuda:", "cuda:x", "cuda:-1", "cpu:0", "", "cuda:99999", "cuda:1\n"])
def test_a_malformed_device_is_wrong_usage(asked: str) -> None:
    with pytest.raises(UsageError, match="is not understood"):
        devices.resolve_device(asked)


def test_dtypes_have_aliases_and_one_spelling() -> None:
    assert canonical_dtypes(["f32", "torch.bfloat16", "bf16", "half"]) == ("float32", "bfloat16", "float16")
    with pytest.raises(UsageError, match=r"unknown dtype 'flaot32'\. Did you mean 'float32'\?"):
        canonical_dtypes(["flaot32"])


@pytest.mark.parametrize("run_id", ["", "a/b", "..", "-x", "a b", ".hidden", "x" * 200, "a\n"])
def test_a_run_id_must_be_a_plain_folder_name(run_id: str) -> None:
    with pytest.raises(UsageError, match="plain folder name"):
        check(RunRequest(run_id=run_id))


def test_what_is_plainly_wrong_is_refused_before_anything_starts() -> None:
    with pytest.raises(UsageError, match="resume needs a run id"):
        check(RunRequest(resume=True))
    with pytest.raises(UsageError, match="threads"):
        check(RunRequest(threads=0))
    with pytest.raises(UsageError, match="load_seconds"):
        check(RunRequest(deadlines=Deadlines(load_seconds=0)))


def test_an_alias_and_its_name_are_the_same_request() -> None:
    assert check(RunRequest(backend="pregenerated")).backend == "directory"
