"""What a candidate can and cannot reach, tried from inside a real worker."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from torchstone.errors import IsolationUnavailableError
from torchstone.isolation import sandbox
from torchstone.isolation.sandbox import Policy
from torchstone.protocol.worker_environment import clean_environment
from torchstone.schema import Limits
from torchstone.supervisor import worker_pool as pool_module
from torchstone.supervisor.ptrace_freezing import descendants
from torchstone.supervisor.worker_handle import Worker
from torchstone.supervisor.worker_pool import WorkerOptions, WorkerPool

Inside = Callable[[str], Any]


@pytest.fixture
def all_layers(worker: Worker) -> None:
    """For what only full isolation promises; root always has it, others where user namespaces are allowed."""
    lacking = [layer.name for layer in worker.layers if not layer.active]
    if lacking and os.geteuid() != 0:
        pytest.skip(f"this machine does not offer {lacking} to this user")
    assert lacking == []


needs_namespaces = pytest.mark.usefixtures("all_layers")


def test_every_layer_is_reported(worker: Worker) -> None:
    assert tuple(layer.name for layer in worker.layers) == sandbox.LAYERS


@needs_namespaces
def test_root_gets_every_layer(worker: Worker) -> None:
    assert tuple(layer.name for layer in worker.layers if layer.active) == sandbox.LAYERS


def test_the_environment_holds_no_secrets(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    assert "ANTHROPIC_API_KEY" not in clean_environment(os.environ)
    seen = inside("sorted(os.environ) + open('/proc/self/environ').read().split(chr(0))")
    assert not any("KEY" in entry or "TOKEN" in entry for entry in seen)


def test_the_scratch_folder_can_be_written(inside: Inside) -> None:
    assert inside("open('file', 'w').write('text')") == 4


@pytest.mark.parametrize("path", ["/etc/x", "/usr/x", "/x", os.path.dirname(os.__file__) + "/x", "/sys/x"])
def test_nothing_else_can_be_written(inside: Inside, path: str) -> None:
    assert inside(f"open({path!r}, 'w').write('text')") in ("OSError", "PermissionError")


@needs_namespaces
@pytest.mark.parametrize("path", [str(Path(__file__).parent), "/var", "/home", str(Path.home() / ".ssh"), "/run"])
def test_what_python_does_not_need_has_no_name(inside: Inside, path: str) -> None:
    assert inside(f"os.listdir({path!r})") == "FileNotFoundError"


@needs_namespaces
def test_files_are_hidden_even_without_mount_namespaces(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("gold")
    cell = sandbox.Cell(Policy("best", Limits(), "cpu", str(tmp_path)))
    cell.scratch = str(tmp_path / "scratch")
    os.mkdir(cell.scratch)
    child = os.fork()
    if child == 0:  # Landlock binds this process for good
        sandbox.linux_calls.no_new_privileges()
        sandbox._enforce_landlock(cell, sandbox.readable_paths(), sandbox.linux_calls.landlock_version())
        try:
            secret.read_text()
            os._exit(1)
        except PermissionError:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@needs_namespaces
def test_other_processes_cannot_be_seen(inside: Inside) -> None:
    assert inside("[int(pid) for pid in os.listdir('/proc') if pid.isdigit()]") == [1, 2]


@pytest.mark.parametrize("name", ["mem", "environ", "fd/1", "maps"])
def test_the_warden_cannot_be_read(inside: Inside, name: str) -> None:
    assert inside(f"open('/proc/1/{name}', 'rb').read(1)") in ("PermissionError", "FileNotFoundError")


def test_the_warden_cannot_be_signalled(inside: Inside) -> None:
    assert inside("os.kill(1, signal.SIGKILL)") in ("PermissionError", "ProcessLookupError")


def test_there_is_no_network(inside: Inside) -> None:
    assert inside("socket.create_connection(('127.0.0.1', 22), 1)") in ("PermissionError", "OSError")


@pytest.mark.parametrize(
    "call",
    [
        "ctypes.CDLL(None).unshare(0x10000000)",
        "ctypes.CDLL(None).ptrace(16, 1, 0, 0)",
        "ctypes.CDLL(None).mount(b'none', b'/scratch', b'tmpfs', 0, None)",
        "ctypes.CDLL(None).setns(0, 0)",
        "ctypes.CDLL(None).syscall(425, 8, 0)",
        "ctypes.CDLL(None).prctl(62, 1, 0, 0, 0)",
        "ctypes.CDLL(None).prctl(22, 1, 0, 0, 0)",
        "ctypes.CDLL(None).syscall({'x86_64': 317, 'aarch64': 277}[os.uname().machine], 1, 0, bytes(16))",
        "ctypes.CDLL(None).syscall(444, (4).to_bytes(8, 'little'), 8, 0)",
        "ctypes.CDLL(None).shmget(0, 4096, 0o1600)",
        "ctypes.CDLL(None).semget(0, 1, 0o1600)",
        "ctypes.CDLL(None).msgget(0, 0o1600)",
        "ctypes.CDLL(None).fallocate(os.memfd_create('hole'), 3, ctypes.c_long(0), ctypes.c_long(4096))",
    ],
)
def test_side_doors_are_refused(inside: Inside, call: str) -> None:
    assert inside(call) == -1


@pytest.mark.parametrize(("advice", "taken"), [(9, False), (14, False), (25, False), (4, True)])
def test_nobody_chooses_the_pages_that_arguments_lie_in(inside: Inside, advice: int, taken: bool) -> None:
    """Holes, huge pages and collapsing into such. To give pages of its own back (4) is a program's own affair."""
    mapped = "(m := mmap.mmap(-1, 4 << 20), ctypes.addressof(ctypes.c_char.from_buffer(m)))[1]"
    advise = f"ctypes.CDLL(None).madvise(ctypes.c_void_p({mapped}), ctypes.c_size_t(4 << 20), {advice})"
    assert inside(advise) == (0 if taken else -1)


def test_cores_and_priority_cannot_be_changed(inside: Inside) -> None:
    assert inside("os.sched_setaffinity(0, range(os.cpu_count()))") == "PermissionError"


def test_memory_is_bounded_per_process(inside: Inside) -> None:
    assert inside("len(bytearray(3 << 30))") == "MemoryError"


@needs_namespaces
def test_scratch_is_bounded_and_gone_afterwards(inside: Inside, worker: Worker) -> None:
    fill = "[open(f'fill{n}', 'wb').write(bytes(16 << 20)) for n in range(8)]"
    assert inside(fill) == "OSError"


def test_descriptors_of_the_judge_are_not_inherited(inside: Inside) -> None:
    names = inside("[os.readlink(f'/proc/self/fd/{n}') for n in range(3, 32) if os.path.lexists(f'/proc/self/fd/{n}')]")
    assert all(name.startswith(("socket:", "pipe:", "/scratch", "/dev/null")) for name in names)
    assert sum(name.startswith("socket:") for name in names) == 1
    assert sum(name.startswith("pipe:") for name in names) == 1


def test_children_end_with_the_worker(inside: Inside, worker: Worker) -> None:
    inside("subprocess.Popen(['setsid', 'sleep', '1000']).pid")
    assert worker.warden_pid is not None
    pids = descendants(worker.warden_pid)
    assert len(pids) >= 3
    worker.kill()
    deadline = time.monotonic() + 5
    while any(os.path.exists(f"/proc/{pid}") for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [pid for pid in pids if os.path.exists(f"/proc/{pid}")] == []


def test_compilers_work_inside(inside: Inside) -> None:
    build = "subprocess.run('echo \"int main(){return 3;}\" > a.c && cc a.c && ./a.out', shell=True).returncode"
    assert inside(build) == 3


def test_strict_refuses_when_a_layer_is_missing(monkeypatch: pytest.MonkeyPatch, pool: WorkerPool) -> None:
    strict = WorkerPool(WorkerOptions(isolation="strict", spares=0))
    strict._zygote = pool._zygote  # the same zygote serves any policy
    lacking = [sandbox.Layer("landlock", False, "this kernel has none")]
    monkeypatch.setattr(pool_module, "missing_layers", lambda layers: lacking)
    with pytest.raises(IsolationUnavailableError, match=r"landlock: this kernel has none.*--isolation best"):
        strict.take()


def test_none_leaves_the_processes_separate_only(pool: WorkerPool, tmp_path: Path) -> None:
    bare = WorkerPool(WorkerOptions(isolation="none", spares=0))
    bare._zygote = pool._zygote
    worker = bare.take()
    assert [layer.name for layer in worker.layers if layer.active] == []
    assert worker.warden_pid is not None
    pids = descendants(worker.warden_pid)
    worker.kill()
    until = time.monotonic() + 5  # without a namespace of their own, nobody waits for all of them
    while any(os.path.exists(f"/proc/{pid}") for pid in pids) and time.monotonic() < until:
        time.sleep(0.01)
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)
    assert not list(Path(bare._folder).glob("scratch-*"))
    os.rmdir(bare._folder)


def test_torchs_own_operators_have_memory_however_little_candidates_get(pool: WorkerPool) -> None:
    small = WorkerPool(WorkerOptions(limits=Limits(memory_bytes=640 << 20), spares=0))
    os.rmdir(small._folder)
    small._zygote, small._policy = pool._zygote, msgspec.structs.replace(small._policy, staging=pool._folder)
    candidates, own = small.take(), small.take_own()
    found = [_data_limit(worker) for worker in (candidates, own)]
    candidates.kill()
    own.kill()
    assert found == [640 << 20, Limits().memory_bytes]


def _data_limit(worker: Worker) -> int:
    lines = Path(f"/proc/{worker.pid}/limits").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("Max data size")).split()[3])
