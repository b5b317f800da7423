"""Commands that are sent to a worker which stands still: carried out when it is next asked, and no reply is skipped."""

from __future__ import annotations

import time

import pytest

from torchstone.protocol.commands import Release
from torchstone.protocol.replies import Done, Failed, Reply
from torchstone.supervisor.worker_failures import BadReplyError
from torchstone.supervisor.worker_handle import Worker
from worker.conftest import load

PRINTING = """
import torchstone.worker.command_loop as child
answer = child._Server._answer
def told(self, command, descriptor):
    print(command.token, flush=True)
    return answer(self, command, descriptor)
child._Server._answer = told
def kernel(x): return x
"""
FORGING = """
import torchstone.worker.command_loop as child
send = child.CommandChannel.send
def forged(self, reply):
    if reply.token == "second":
        reply = type(reply)("first")
    send(self, reply)
child.CommandChannel.send = forged
def kernel(x): return x
"""
SILENT = """
import torchstone.worker.command_loop as child
send = child.CommandChannel.send
child.CommandChannel.send = lambda self, reply: None if reply.token == "first" else send(self, reply)
def kernel(x): return x
"""


def soon() -> float:
    return time.monotonic() + 20.0


def send_without_waiting(worker: Worker, *tokens: str) -> list[Reply]:
    replies: list[Reply] = []
    worker.freeze()
    for token in tokens:
        worker.send_without_waiting(Release(token), soon(), replies.append)
    return replies


def test_they_wait_until_it_is_asked_and_are_answered_in_order(worker: Worker) -> None:
    load(worker, PRINTING)
    replies = send_without_waiting(worker, "first", "second")
    worker.clear_log()
    time.sleep(0.05)
    assert replies == []
    assert worker.log_tail == "", "it stands still"
    assert worker.ask(Release("third"), soon()) == Done("third")
    assert replies == [Done("first"), Done("second")]
    assert worker.log_tail.split() == ["first", "second", "third"]


def test_settling_leaves_it_still_and_nothing_to_be_read(worker: Worker) -> None:
    load(worker, PRINTING)
    replies = send_without_waiting(worker, "first")
    worker.await_sent(soon())
    assert replies == [Done("first")]
    worker.check_silence()


def test_a_reply_with_another_token_is_seen(worker: Worker) -> None:
    load(worker, FORGING)
    send_without_waiting(worker, "first", "second")
    with pytest.raises(BadReplyError):
        worker.ask(Release("third"), soon())


def test_a_reply_that_is_left_out_is_seen(worker: Worker) -> None:
    load(worker, SILENT)
    send_without_waiting(worker, "first")
    with pytest.raises(BadReplyError):
        worker.ask(Release("second"), soon())


def test_who_takes_a_reply_may_refuse_it(worker: Worker) -> None:
    load(worker, "def kernel(x): return x")
    worker.freeze()

    def refuse(reply: Reply) -> None:
        assert not isinstance(reply, Failed)
        raise LookupError

    worker.send_without_waiting(Release("first"), soon(), refuse)
    with pytest.raises(LookupError):
        worker.await_sent(soon())
