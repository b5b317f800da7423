"""A process that answers, as its parent sees it: messages, deadlines, its log, how it ended."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from torchstone.processes import (
    BoundedLog,
    ChildEndedError,
    ChildProcess,
    Ends,
    ReplyTimeoutError,
    ending_in_words,
    receive,
    send,
)
from torchstone.processes.child_process import STATUS
from torchstone.processes.msgpack_framing import frame, take

Answer = Callable[[int, int, int], None]


@contextlib.contextmanager
def child(answer: Answer) -> Iterator[ChildProcess]:
    """A forked process that does `answer(requests, replies, log)`; its status is written when it has ended."""
    (their_requests, requests), (replies, their_replies), (log, their_log), (status, their_status), (_, leash) = (
        os.pipe() for _ in range(5)
    )
    pid = os.fork()
    if pid == 0:
        for descriptor in (requests, replies, log, status, their_status, leash):
            os.close(descriptor)
        try:
            answer(their_requests, their_replies, their_log)
        finally:
            os._exit(5)
    os.write(their_status, STATUS.pack(pid))
    for descriptor in (their_requests, their_replies, their_log):
        os.close(descriptor)
    ended = threading.Thread(target=lambda: os.write(their_status, STATUS.pack(os.waitpid(pid, 0)[1])))
    ended.start()
    made = ChildProcess(Ends(requests, replies, log, status, leash), BoundedLog())
    try:
        yield made
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        ended.join()
        os.close(their_status)
        made.end()


def soon() -> float:
    return time.monotonic() + 10


def test_messages_of_any_size_arrive_whole() -> None:
    stream = io.BytesIO()
    send(stream, {"a": float("inf")})
    send(stream, [1, "x" * 100_000])
    stream.seek(0)
    assert receive(stream, dict) == {"a": float("inf")}
    assert receive(stream, list) == [1, "x" * 100_000]
    assert receive(stream, dict) is None
    buffer = bytearray(frame("one") + frame("two")[:5])
    assert take(buffer) is not None
    assert take(buffer) is None


def test_a_request_is_answered_and_prints_go_to_the_log() -> None:
    def answer(requests: int, replies: int, log: int) -> None:
        with os.fdopen(requests, "rb") as incoming, os.fdopen(replies, "wb") as outgoing:
            while (number := receive(incoming, int)) is not None:
                os.write(log, b"printed\n" * 100_000)
                send(outgoing, number + 1)

    with child(answer) as found:
        assert found.ask(1, int, soon()) == 2
        assert found.ask(2, int, soon()) == 3
        assert found.log.total_bytes >= 8 * 100_000
        assert found.log.tail.endswith("printed\n")


def test_no_answer_before_the_deadline_is_told() -> None:
    with child(lambda *_: time.sleep(30)) as found:
        began = time.monotonic()
        with pytest.raises(ReplyTimeoutError):
            found.ask(1, int, time.monotonic() + 0.3)
        assert time.monotonic() - began < 3


def test_an_end_without_an_answer_is_told_in_words() -> None:
    with child(lambda *_: None) as found, pytest.raises(ChildEndedError, match="ended with exit code 5"):
        found.ask(1, int, soon())


def test_endings_in_words() -> None:
    assert ending_in_words(0) == "ended with exit code 0"
    assert ending_in_words(-9) == "was killed by SIGKILL"
    assert ending_in_words(-40) == "was killed by signal 40"


def test_a_log_keeps_its_beginning_in_the_file_and_its_end_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "log"
    log = BoundedLog(path, file_bytes=100, tail_bytes=10)
    assert not path.exists()
    for number in range(100):
        log.write(b"%09d\n" % number)
    log.close()
    text = path.read_text()
    assert text.startswith("000000000\n")
    assert text.endswith("[900 more bytes were printed; these are the last]\n000000099\n")
    assert log.tail == "000000099\n"
