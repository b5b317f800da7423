"""What a candidate built reaches its own later workers, and nothing else does."""

from __future__ import annotations

import fcntl
import os
import shutil
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest

from torchstone.executors import ExecutorOptions
from torchstone.executors.local import LocalExecutor
from torchstone.judge_process.kept_builds import ROOM_BYTES, WORTH_SECONDS, KeptBuilds
from torchstone.schema import (
    Agrees,
    Case,
    Crashed,
    Deadlines,
    Disagrees,
    Implementation,
    Job,
    Normal,
    Record,
    SourceFile,
    SourceFiles,
    Tensor,
    verdict_name,
    with_problem,
)
from torchstone.suites import CaseQuery
from torchstone.suites.kernelbench import KernelBenchSuite
from torchstone.worker.built_files import FOLDERS, pack, unpack

RELU = "aten.relu.default"
CASES = tuple(Case("test", RELU, (Tensor((size,), "float32", Normal()),)) for size in (5, 7, 9))
PATIENT = Deadlines(300, 300, 300, 300)
"""A busy machine compiles slowly."""
WANTS_NINJA = pytest.mark.skipif(not shutil.which("ninja"), reason="load_inline needs ninja")
SLOW_TO_BUILD = f"""
import os, pathlib, time

mark = pathlib.Path(os.environ["TORCH_EXTENSIONS_DIR"], "mine", "built")

def build():
    print("FOUND" if mark.exists() else "BUILDS", flush=True)
    if not mark.exists():
        began = time.process_time()
        while time.process_time() < began + {WORTH_SECONDS + 0.2}:  # it stands still while others measure
            pass
        mark.parent.mkdir(parents=True)
        mark.write_text("built")
"""
LOAD_INLINE = """
import os
from pathlib import Path
from torch.utils import cpp_extension

print("FOUND" if list(Path(os.environ["TORCH_EXTENSIONS_DIR"]).rglob("*.so")) else "BUILDS", flush=True)
SOURCE = "at::Tensor shifted(at::Tensor x) { return x + 1; }"
module = cpp_extension.load_inline(name="shifted", cpp_sources=SOURCE, functions=["shifted"])
"""


TRITON = """
import os
from pathlib import Path

print("FOUND" if list(Path(os.environ["TRITON_CACHE_DIR"]).rglob("*.ptx")) else "BUILDS", flush=True)
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

@triton.jit
def add(source, target, SIZE: tl.constexpr):
    places = tl.arange(0, SIZE)
    tl.store(target + places, tl.load(source + places) + 1)

signature = {"source": "*fp32", "target": "*fp32", "SIZE": "constexpr"}
triton.compile(ASTSource(add, signature, {"SIZE": 128}), target=GPUTarget("cuda", 90, 32))
"""


def source(text: str, name: str = "kernel.py", entry: str = "kernel") -> Implementation:
    return Implementation("test", RELU, SourceFiles((SourceFile(name, text),), entry))


CRASHES = f"{SLOW_TO_BUILD}\nbuild()\ndef kernel(x): os.abort()\n"
KERNELS = {
    "crashes": source(CRASHES),
    "other crashes": source(f"# another\n{CRASHES}"),
    "dies": source(
        f"{SLOW_TO_BUILD}\nfirst = not mark.exists()\ncalls = 0\n"
        "def kernel(x):\n"
        "    global calls\n"
        "    calls += 1\n"
        "    if calls == 1: build()\n"
        "    elif first: os.kill(os.getpid(), 9)\n"
        "    return x.clamp(min=0)\n"
    ),
    "does not compile": source("#error no\nint kernel() { return 1; }", "relu.cpp"),
    "triton": source(f"{TRITON}\ndef kernel(x): os.abort()\n"),
    "load_inline": source(f"{LOAD_INLINE}\ndef kernel(x): return module.shifted(x)\n"),
}


def records_of(*implementations: Implementation) -> list[list[Record]]:
    """For each implementation the records of every case, in order. One judge judges all."""
    jobs = [[Job(case, each, "quick", PATIENT, measured=False) for case in CASES] for each in implementations]
    run = LocalExecutor(ExecutorOptions()).run(job for own in jobs for job in own)
    found = {record.job_key: record for record in run}
    return [[found[job.key] for job in own] for own in jobs]


@pytest.fixture(scope="module")
def judged() -> dict[str, list[Record]]:
    """Starting a judge takes longer than most of the tests."""
    return dict(zip(KERNELS, records_of(*KERNELS.values()), strict=True))


def words(records: list[Record]) -> list[str]:
    return [word for record in records for word in record.log_tail.split() if word in ("FOUND", "BUILDS")]


def test_a_kernel_that_crashes_is_built_once_and_another_never_sees_its_files(judged: dict[str, list[Record]]) -> None:
    for name in ("crashes", "other crashes"):
        assert all(isinstance(record.verdict, Crashed) for record in judged[name])
        assert words(judged[name]) == ["BUILDS", "FOUND", "FOUND"]


def test_what_was_taken_after_a_call_is_not_given_to_the_same_job_again(judged: dict[str, list[Record]]) -> None:
    """A worker that kills itself meets the same values again: it must not find what it wrote down about them."""
    first, *others = (record.verdict for record in judged["dies"])
    assert isinstance(first, Crashed)
    assert first.message == "the kernel's process was killed each time it ran"
    assert all(isinstance(verdict, Agrees) for verdict in others)
    assert words(judged["dies"]) == ["BUILDS", "FOUND"], "the second worker serves both other cases"


def test_source_that_does_not_compile_is_compiled_once(judged: dict[str, list[Record]]) -> None:
    verdict, *others = (record.verdict for record in judged["does not compile"])
    assert isinstance(verdict, Crashed)
    assert "#error no" in verdict.message
    assert verdict.stage == "compile"
    assert others == [verdict, verdict]
    assert len({record.stage_seconds["compile"] for record in judged["does not compile"]}) == 1


@pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
def test_kernels_of_triton_are_compiled_once(judged: dict[str, list[Record]]) -> None:
    assert all(isinstance(record.verdict, Crashed) for record in judged["triton"])
    assert words(judged["triton"]) == ["BUILDS", "FOUND", "FOUND"]


@WANTS_NINJA
def test_a_wrong_load_inline_kernel_is_built_once(judged: dict[str, list[Record]]) -> None:
    assert all(isinstance(record.verdict, Disagrees) for record in judged["load_inline"])
    assert words(judged["load_inline"]) == ["BUILDS", "FOUND", "FOUND"]
    first, *later = (record.stage_seconds["load"] for record in judged["load_inline"])
    assert max(later) < first / 4


@pytest.mark.slow
def test_native_source_that_crashes_is_built_once() -> None:
    text = "#include <ATen/core/Tensor.h>\nat::Tensor kernel(at::Tensor x) { __builtin_trap(); }\n"
    (records,) = records_of(source(text, "relu.cpp"))
    assert all(isinstance(record.verdict, Crashed) for record in records)
    first, *later = (record.stage_seconds["compile"] for record in records)
    assert max(later) < first / 4


@WANTS_NINJA
@pytest.mark.slow
def test_a_solution_of_kernelbench_with_load_inline_is_built_once(tmp_path: Path) -> None:
    problem = "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x): return torch.relu(x)\n"
    (tmp_path / "1_ReLU.py").write_text(f"{problem}def get_inputs(): return [torch.rand(9, 7)]\n")
    (case,) = KernelBenchSuite().cases(CaseQuery(source=str(tmp_path)))
    assert case.model is not None
    records: list[Record] = []
    for function in ("shifted", "right"):
        text = LOAD_INLINE.replace('functions=["shifted"]', 'functions=["shifted", "right"]').replace(
            "x + 1; }", "x + 1; } at::Tensor right(at::Tensor x) { return x.clamp_min(0); }"
        )
        text += (
            f"import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x): return module.{function}(x)\n"
        )
        solution = with_problem(SourceFiles((SourceFile("1_ReLU.py", text),), "ModelNew"), case.model)
        implementation = Implementation("kernelbench", case.operator, solution)
        jobs = [Job(case, implementation, effort, PATIENT, measured=False) for effort in ("quick", "normal")]
        records += LocalExecutor(ExecutorOptions()).run(jobs)
    assert [verdict_name(record.verdict) for record in records] == ["disagrees", "disagrees", "agrees", "agrees"]
    assert words(records) == ["BUILDS", "FOUND", "BUILDS"], "the right one needs no second worker"


# ---- what the judge keeps


def memory(content: bytes) -> int:
    descriptor = os.memfd_create("test")
    os.pwrite(descriptor, content, 0)
    return descriptor


def kept(builds: KeptBuilds, key: str) -> bytes | None:
    build = builds.of(key)
    return None if build is None else os.pread(build.descriptor, build.size_bytes, 0)


def test_kept_bytes_can_be_changed_by_nobody_and_come_back_by_key_alone() -> None:
    builds, source = KeptBuilds(), memory(b"built")
    builds.take("mine", source, 5, knows_values=False)
    os.pwrite(source, b"later", 0)
    assert kept(builds, "mine") == b"built"
    assert kept(builds, "other") is None
    found = builds.of("mine")
    assert found is not None
    with pytest.raises(PermissionError):
        os.pwrite(found.descriptor, b"x", 0)
    with pytest.raises(PermissionError):
        os.ftruncate(found.descriptor, 0)
    with pytest.raises(PermissionError):
        fcntl.fcntl(found.descriptor, 1033, 1)
    os.close(source)
    builds.close()


def test_what_knows_values_waits_for_the_next_job() -> None:
    builds, before, after = KeptBuilds(), memory(b"before"), memory(b"after!")
    builds.begin_job()
    builds.take("key", before, 6, knows_values=False)
    builds.take("key", after, 6, knows_values=True)
    assert kept(builds, "key") == b"before"
    builds.begin_job()
    assert kept(builds, "key") == b"after!"
    for descriptor in (before, after):
        os.close(descriptor)
    builds.close()


def test_bytes_and_copies_are_bounded() -> None:
    builds, source = KeptBuilds(most_bytes=10), memory(b"12345")
    open_before = len(os.listdir("/proc/self/fd"))
    for key in "abc":
        builds.take(key, source, 5, knows_values=False)
    assert [kept(builds, key) for key in "abc"] == [None, b"12345", b"12345"]
    builds.take("big", source, ROOM_BYTES + 1, knows_values=False)
    assert kept(builds, "big") is None
    assert not builds.wants("c", WORTH_SECONDS / 2)
    while builds.wants("c", WORTH_SECONDS):
        builds.take("c", source, 5, knows_values=False)
    assert len(os.listdir("/proc/self/fd")) == open_before + 2
    builds.close()
    assert len(os.listdir("/proc/self/fd")) == open_before
    os.close(source)


def test_a_worker_cannot_have_more_copied_than_it_wrote() -> None:
    builds, source = KeptBuilds(), memory(b"12345")
    builds.take("key", source, 4096, knows_values=False)
    assert kept(builds, "key") is None
    os.close(source)


# ---- what a worker packs


def test_files_come_back_as_they_were_without_links_and_pipes(tmp_path: Path) -> None:
    before, after, room = tmp_path / "before", tmp_path / "after", memory(b"")
    folder = before / "extensions" / "mine"
    folder.mkdir(parents=True)
    (folder / "mine.so").write_bytes(b"\x7fELF")
    (folder / "mine.so").chmod(0o755)
    os.utime(folder / "mine.so", ns=(7, 1_234_567_890_123_456_789))
    (folder / "link").symlink_to("/etc/passwd")
    os.mkfifo(folder / "pipe")
    (before / "elsewhere").write_text("not built")
    unpack(after, room, pack(before, room, 1 << 20))
    assert [str(path.relative_to(after)) for path in after.rglob("*") if not path.is_dir()] == [
        "extensions/mine/mine.so"
    ]
    found = (after / "extensions" / "mine" / "mine.so").stat()
    assert (found.st_mode & 0o777, found.st_mtime_ns) == (0o755, 1_234_567_890_123_456_789)
    assert pack(before, room, 3) == 0, "more than there is room for is not packed"
    os.close(room)


@pytest.mark.parametrize("name", ["/etc/x", "extensions/../../x", "kernel/kernel.py", "extensions", "tmp/x"])
def test_no_file_is_put_anywhere_else(tmp_path: Path, name: str) -> None:
    packed = msgspec.msgpack.encode([(name, 0o644, 0, b"text")])
    room = memory(packed)
    with pytest.raises(ValueError, match="folder of compilers"):
        unpack(tmp_path / "scratch", room, len(packed))
    assert not list(tmp_path.rglob("*"))
    os.close(room)


def test_a_link_that_is_there_is_not_followed(tmp_path: Path) -> None:
    packed = msgspec.msgpack.encode([("extensions/x", 0o644, 0, b"text")])
    (tmp_path / "extensions").mkdir()
    (tmp_path / "target").write_text("kept")
    (tmp_path / "extensions" / "x").symlink_to(tmp_path / "target")
    room = memory(packed)
    unpack(tmp_path, room, len(packed))
    assert (tmp_path / "target").read_text() == "kept"
    assert "extensions" in FOLDERS
    os.close(room)
