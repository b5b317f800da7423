"""Every way in which a worker can fail to answer is noticed, named and survived."""

from __future__ import annotations

import os
import select
import signal
import time

import pytest

from torchstone.protocol.commands import Load
from torchstone.protocol.replies import Done, Failed
from torchstone.supervisor import wait_for_end
from torchstone.supervisor.ptrace_freezing import descendants
from torchstone.supervisor.worker_failures import BadReplyError, OverLimitError, WorkerEndedError, WorkerTimeoutError
from torchstone.supervisor.worker_handle import Worker
from torchstone.supervisor.worker_pool import WorkerPool
from worker.conftest import LIMITS, implementation, load


def test_a_candidate_loads(worker: Worker) -> None:
    assert isinstance(load(worker, "def kernel(x): return x"), Done)


def test_an_exception_comes_back_with_its_traceback(worker: Worker) -> None:
    reply = load(worker, "def helper():\n    raise ValueError('spilt')\nhelper()\ndef kernel(x): return x")
    assert isinstance(reply, Failed)
    assert reply.kind == "exception"
    assert reply.message == "ValueError: spilt"
    assert "in helper" in reply.traceback


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("raise SystemExit(0)", "exit"),
        ("raise MemoryError", "memory"),
        ("raise NotImplementedError('bf16')", "unsupported"),
        ("raise KeyboardInterrupt", "exception"),
        ("def kernel(:", "exception"),
    ],
)
def test_kinds_of_failure_are_told_apart(worker: Worker, source: str, kind: str) -> None:
    reply = load(worker, source)
    assert isinstance(reply, Failed)
    assert reply.kind == kind


def test_a_huge_message_is_cut(worker: Worker) -> None:
    reply = load(worker, "raise ValueError('x' * 10_000_000)")
    assert isinstance(reply, Failed)
    assert len(reply.message) <= 16 << 10


@pytest.mark.parametrize(
    ("source", "signal_number", "exit_code"),
    [
        ("import os; os._exit(0)", None, 0),
        ("import os; os._exit(7)", None, 7),
        ("import ctypes; ctypes.string_at(0)", signal.SIGSEGV, None),
        ("import os; os.abort()", signal.SIGABRT, None),
        ("import os; os.kill(os.getpid(), 15)", signal.SIGTERM, None),
    ],
)
def test_how_a_worker_ended_is_told(
    worker: Worker, source: str, signal_number: int | None, exit_code: int | None
) -> None:
    with pytest.raises(WorkerEndedError) as caught:
        load(worker, source)
    assert caught.value.ending is not None
    assert (caught.value.ending.signal_number, caught.value.ending.exit_code) == (signal_number, exit_code)


def test_a_worker_that_was_killed_is_gone(worker: Worker) -> None:
    load(worker, "import subprocess; subprocess.Popen(['sleep', '60'])\ndef kernel(x): return x")
    assert worker.warden_pid is not None
    pids = descendants(worker.warden_pid)
    assert len(pids) == 3
    worker.kill()
    assert worker.is_gone
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)


def test_one_that_does_not_end_is_not_said_to_be_gone(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its warden, which ends everything, is stopped: as if the system were busy clearing up."""
    monkeypatch.setattr(wait_for_end, "_GONE_SECONDS", 0.3)
    worker.check_silence()
    assert worker.warden_pid is not None
    warden = os.pidfd_open(worker.warden_pid)
    os.kill(worker.warden_pid, signal.SIGSTOP)
    worker.kill()
    assert not worker.is_gone
    signal.pidfd_send_signal(warden, signal.SIGCONT)
    assert select.select([warden], [], [], 20)[0]
    os.close(warden)


def test_a_warden_killed_from_outside_leaves_no_ending(worker: Worker) -> None:
    worker.check_silence()
    assert worker.warden_pid is not None
    os.kill(worker.warden_pid, signal.SIGKILL)
    with pytest.raises(WorkerEndedError) as caught:
        load(worker, "import time; time.sleep(10)")
    assert caught.value.ending is None


def test_a_hang_overruns_and_dies(worker: Worker) -> None:
    began = time.monotonic()
    with pytest.raises(WorkerTimeoutError):
        load(worker, "while True: pass", seconds=0.5)
    assert 0.4 < time.monotonic() - began < 3
    assert worker.warden_pid is not None
    pids = descendants(worker.warden_pid)
    worker.kill()
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)


_WRITE = "import os\nfor fd in range(3, 64):\n    try: os.write(fd, {data})\n    except OSError: pass\n"


@pytest.mark.parametrize(
    "data",
    [
        r"b'\xff' * 100",
        r"b'\x05\x00\x00\x00hello'",
        r"b'\x02\x00\x00\x00{}'",
        r"""(lambda j: len(j).to_bytes(4, 'little') + j)(b'{"type":"done","token":"guessed"}')""",
        r"""(lambda j: len(j).to_bytes(4, 'little') + j)(b'{"type":"ready","layers":[]}')""",
    ],
)
def test_a_forged_reply_is_noticed(worker: Worker, data: str) -> None:
    with pytest.raises(BadReplyError):
        load(worker, _WRITE.format(data=data) + "def kernel(x): return x")


def test_words_between_commands_are_noticed(worker: Worker) -> None:
    source = """
import os, threading, time
def chatter():
    time.sleep(0.3)
    for fd in range(3, 64):
        try: os.write(fd, b'x')
        except OSError: pass
threading.Thread(target=chatter, daemon=True).start()
def kernel(x): return x
"""
    load(worker, source)
    time.sleep(0.8)
    with pytest.raises(BadReplyError, match="reply to no command"):
        worker.check_silence()


def test_a_reply_with_the_right_token_is_still_only_one(worker: Worker) -> None:
    """The token lies in the worker's memory and can be found; answering twice with it is noticed all the same."""
    reply = b'{"type":"done","token":"token"}'
    framed = len(reply).to_bytes(4, "little") + reply
    load(worker, _WRITE.format(data=repr(framed)) + "def kernel(x): return x")
    time.sleep(0.2)
    with pytest.raises(BadReplyError):
        worker.ask(Load("next", implementation("def kernel(x): return x")), time.monotonic() + 5)


def test_output_is_bounded_and_the_end_is_kept(worker: Worker) -> None:
    load(worker, "import os\nfor n in range(2000): os.write(1, b'x' * 4096)\nprint('the end')\ndef kernel(x): return x")
    assert len(worker.log_tail) <= LIMITS.log_tail_bytes
    assert worker.log_tail.endswith("the end\n")


def test_memory_shared_between_processes_is_counted(worker: Worker) -> None:
    source = """
import mmap, time
hoard = [mmap.mmap(-1, 256 << 20) for _ in range(12)]
for block in hoard:
    for offset in range(0, len(block), 4096): block[offset] = 1
time.sleep(10)
"""
    with pytest.raises(OverLimitError, match="MiB resident") as caught:
        load(worker, source)
    assert caught.value.kind == "memory"


def test_a_killed_zygote_is_replaced(pool: WorkerPool) -> None:
    process = pool._zygote._process
    assert process is not None
    before = pool.take()
    process.kill()
    process.wait()
    after = pool.take()
    assert isinstance(load(after, "def kernel(x): return x"), Done)
    assert isinstance(load(before, "def kernel(x): return x"), Done), "workers outlive their zygote"
    before.kill()
    after.kill()
