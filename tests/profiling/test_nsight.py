"""External profilers: a real subject process under a fake `ncu` that is a real program."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from faking import FakeTool

from torchstone.executors.devices import Device
from torchstone.profiling import BenchmarkFile, Subject, external_tools, nsight_compute, nsight_systems
from torchstone.profiling.nsight import launch

MakeSubject = Callable[..., Subject]
MakeTool = Callable[..., FakeTool]


def test_the_subject_runs_the_report_is_kept_and_the_table_is_read(
    subject_of: MakeSubject, fake_tool: MakeTool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "secret")
    count = tmp_path / "count"
    kernel = f"def kernel(x):\n    open({str(count)!r}, 'a').write('.')\n    return x.clamp(min=0)\n"
    tool, subject = fake_tool(), subject_of(kernel, calls=4, warmup_calls=2)
    result = launch(nsight_compute.TOOL, tool.path, subject)
    assert (result.status, result.notice, result.version) == ("profiled", "", "2025.3.1.0")
    assert result.files == ("ncu.ncu-rep",)
    assert (subject.folder / "ncu.ncu-rep").read_text() == "the report"
    assert [kernel.launches for kernel in result.kernels] == [2, 1]
    assert not result.sandboxed
    assert count.read_text() == "......"
    (version, launched, imported) = (json.loads(line) for line in tool.log.read_text().splitlines())
    for arguments, variables, folder in (version, launched, imported):
        assert "SOME_API_KEY" not in variables
        assert not Path(folder).exists(), "the scratch folder is gone"
        assert "--clock-control" not in arguments or arguments[arguments.index("--clock-control") + 1] == "none"
    assert launched[0][:4] == ["--clock-control", "none", "--target-processes", "all"]
    assert {"--profile-from-start", "off", "--force-overwrite"} <= set(launched[0])


def test_a_kernel_that_raises_is_a_failure_in_its_own_words(subject_of: MakeSubject, fake_tool: MakeTool) -> None:
    result = launch(nsight_compute.TOOL, fake_tool().path, subject_of("def kernel(x): raise ValueError('no [/] way')"))
    assert (result.status, result.notice) == ("failed", "the kernel failed: ValueError: no [/] way")
    assert "Traceback" in result.log_tail


def test_a_kernel_that_crashes_is_a_failure(subject_of: MakeSubject, fake_tool: MakeTool) -> None:
    result = launch(nsight_compute.TOOL, fake_tool().path, subject_of("import os\ndef kernel(x): os.abort()"))
    assert result.status == "failed"
    assert result.notice == "the kernel failed: its process ended before the calls were made"


def test_a_kernel_that_does_not_end_is_stopped(subject_of: MakeSubject, fake_tool: MakeTool) -> None:
    from msgspec.structs import replace

    endless = subject_of("import time\ndef kernel(x): time.sleep(3600)")
    began = time.monotonic()
    result = launch(nsight_compute.TOOL, fake_tool().path, replace(endless, seconds=8.0))
    assert result.status == "failed"
    assert "it did not end within 8 s" in result.notice
    assert time.monotonic() - began < 30


def test_counters_that_the_driver_refuses_are_a_notice_that_says_what_to_do(
    subject_of: MakeSubject, fake_tool: MakeTool
) -> None:
    refuses = "print('==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access counters')"
    result = launch(nsight_compute.TOOL, fake_tool(then=refuses).path, subject_of())
    assert result.status == "unavailable"
    assert "NVreg_RestrictProfilingToAdminUsers=0" in result.notice


def test_a_tool_that_makes_no_report_is_quoted(subject_of: MakeSubject, fake_tool: MakeTool) -> None:
    silent = "print('==ERROR== The application returned an odd thing')"
    result = launch(nsight_compute.TOOL, fake_tool(then=silent).path, subject_of())
    assert result.status == "unavailable"
    assert "odd thing" in result.notice


def test_a_report_that_is_a_link_is_not_followed(subject_of: MakeSubject, fake_tool: MakeTool) -> None:
    link = "os.symlink('/etc/passwd', arguments[arguments.index('-o') + 1] + '.ncu-rep')"
    subject = subject_of()
    result = launch(nsight_compute.TOOL, fake_tool(then=link).path, subject)
    assert result.status == "unavailable"
    assert list(subject.folder.iterdir()) == []


def test_a_table_that_cannot_be_read_costs_the_table_not_the_report(
    subject_of: MakeSubject, fake_tool: MakeTool
) -> None:
    subject = subject_of()
    result = launch(nsight_compute.TOOL, fake_tool(table="nothing").path, subject)
    assert (result.status, result.files, result.kernels) == ("profiled", ("ncu.ncu-rep",), ())
    assert "its table cannot be read" in result.notice
    assert (subject.folder / "ncu.ncu-rep").exists()


def test_a_program_that_does_not_start_counts_as_absent(subject_of: MakeSubject, tmp_path: Path) -> None:
    broken = tmp_path / "ncu"
    broken.write_text("#!/nowhere/at/all\n")
    broken.chmod(0o755)
    result = launch(nsight_compute.TOOL, str(broken), subject_of())
    assert result.status == "absent"
    assert "does not start" in result.notice


def test_an_absent_tool_is_a_notice(subject_of: MakeSubject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(external_tools, "_FOLDERS", {})
    for profiler in (nsight_compute.NsightCompute(), nsight_systems.NsightSystems()):
        result = profiler.profile(subject_of())
        assert result.status == "absent"
        assert "not on this machine. Install NVIDIA Nsight " in result.notice
        assert profiler.caution(subject_of()) == ""


def test_a_tool_is_not_used_for_the_cpu_nor_under_strict_isolation(
    subject_of: MakeSubject, fake_tool: MakeTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from msgspec.structs import replace

    tool = fake_tool()
    monkeypatch.setenv("PATH", os.path.dirname(tool.path) + os.pathsep + os.environ["PATH"])
    profiler = nsight_compute.NsightCompute()
    on_cpu = profiler.profile(subject_of())
    assert (on_cpu.status, on_cpu.notice[:24]) == ("unavailable", "it profiles CUDA kernels")
    on_cuda = replace(subject_of(), device=Device("cuda", "cuda:0", "GPU-0", "GPU-0"))
    assert "outside the sandbox" in profiler.caution(on_cuda)
    strict = replace(on_cuda, isolation="strict")
    assert profiler.profile(strict).status == "unavailable"
    assert profiler.caution(strict) == ""
    assert not tool.log.exists()


def test_the_newest_of_several_installations_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ("12.9", "12.10", "9.2"):
        folder = tmp_path / f"cuda-{version}" / "bin"
        folder.mkdir(parents=True)
        (folder / "ncu").touch(mode=0o755)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(external_tools, "_FOLDERS", {"ncu": (str(tmp_path / "cuda-*" / "bin"),)})
    assert external_tools.find_tool("ncu") == str(tmp_path / "cuda-12.10" / "bin" / "ncu")


def test_a_program_that_prints_without_end_fills_no_memory(tmp_path: Path) -> None:
    ended = external_tools.run(["/bin/sh", "-c", "yes"], {"PATH": os.defpath}, tmp_path, seconds=1.0, keep_bytes=1000)
    assert ended.exit_code is None
    assert len(ended.output) == 1000


def test_a_child_that_keeps_the_pipe_open_does_not_keep_us_waiting(tmp_path: Path) -> None:
    began = time.monotonic()
    ended = external_tools.run(["/bin/sh", "-c", "sleep 60 & echo done"], {"PATH": os.defpath}, tmp_path, seconds=50.0)
    assert (ended.exit_code, ended.output) == (0, "done\n")
    assert time.monotonic() - began < 10


BENCHMARK = """
import os
import random
from helper import LOG

class Work:
    def setup(self):
        self.log = open(LOG, "a", buffering=1)
        print("setup", os.getcwd(), os.environ["SOME_SETTING"], random.random(), __name__, file=self.log)
    def benchmark_fn(self):
        print("call", file=self.log)
        {body}
    def teardown(self):
        print("teardown", file=self.log)
"""


@pytest.fixture
def benchmark_of(tmp_path: Path, subject_of: MakeSubject, monkeypatch: pytest.MonkeyPatch) -> MakeSubject:
    """A subject that is a benchmark file, with a module beside the chapters that it imports."""
    monkeypatch.setenv("SOME_SETTING", "mine")
    monkeypatch.chdir(tmp_path)

    def make(body: str = "pass", **settings: float) -> Subject:
        from msgspec.structs import replace

        chapter = tmp_path / "ch1"
        chapter.mkdir(exist_ok=True)
        (tmp_path / "helper.py").write_text(f"LOG = {str(tmp_path / 'log')!r}\n")
        (chapter / "baseline_it.py").write_text(BENCHMARK.format(body=body))
        what = BenchmarkFile(path=str(chapter / "baseline_it.py"), root=str(tmp_path), seed=7)
        return replace(subject_of(), what=what, calls=3, warmup_calls=1, **settings)

    return make


def test_a_benchmark_runs_as_the_harness_runs_it(
    benchmark_of: MakeSubject, fake_tool: MakeTool, tmp_path: Path
) -> None:
    subject = benchmark_of()
    result = launch(nsight_compute.TOOL, fake_tool().path, subject)
    assert (result.status, result.notice, result.files) == ("profiled", "", ("ncu.ncu-rep",))
    first, *calls, last = (tmp_path / "log").read_text().splitlines()
    drawn = random.Random(7).random()
    assert first == f"setup {tmp_path} mine {drawn} ch1.baseline_it", "the user's folder, variables, seed and imports"
    assert calls == ["call"] * 4
    assert last == "teardown"


def test_a_benchmark_that_raises_is_a_failure_in_its_own_words(benchmark_of: MakeSubject, fake_tool: MakeTool) -> None:
    result = launch(nsight_compute.TOOL, fake_tool().path, benchmark_of("raise KeyError('it')"))
    assert (result.status, result.notice) == ("failed", "the benchmark failed: KeyError: 'it'")


def test_a_benchmark_that_does_not_end_is_stopped(benchmark_of: MakeSubject, fake_tool: MakeTool) -> None:
    endless = benchmark_of("import time; time.sleep(3600)", seconds=8.0)
    result = launch(nsight_compute.TOOL, fake_tool().path, endless)
    assert (result.status, result.notice) == ("failed", "it did not end within 8 s.")
