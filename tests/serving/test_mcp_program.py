"""``torchstone mcp`` as agents use it: the real command, driven by the SDK's own client over stdin and stdout."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

pytest.importorskip("mcp", reason="needs the extra mcp")

import anyio
from mcp import Client, StdioServerParameters
from mcp.types import CallToolResult

from serving.kernels import RELU, RELU_THAT_HANGS, RELU_WRONG_ON_NAN

COMMAND = [sys.executable, "-m", "torchstone", "mcp", "--device", "cpu"]


@pytest.fixture
def server(tmp_path: Path) -> StdioServerParameters:
    return StdioServerParameters(command=COMMAND[0], args=COMMAND[1:], env=dict(os.environ), cwd=tmp_path)


def text_of(result: CallToolResult) -> str:
    return "\n".join(item.text for item in result.content if item.type == "text")


def fields_of(result: CallToolResult) -> dict[str, Any]:
    assert result.structured_content is not None
    return result.structured_content


async def drive(server: StdioServerParameters, *, by_path: Path | None = None) -> list[CallToolResult]:
    """As an agent works: a wrong kernel, why it is wrong, a right one, its speed."""
    async with Client(server) as client:
        check = {"operator": "relu", "source": RELU_WRONG_ON_NAN, "wait_seconds": 120}
        answers = [await client.call_tool("check_kernel", check)]
        wrong = next(each for each in fields_of(answers[0])["kernels"][0]["records"] if not each["right"])
        answers.append(await client.call_tool("explain_record", {"record": wrong["record"]}))
        given = {"source": RELU} if by_path is None else {"path": str(by_path)}
        answers.append(
            await client.call_tool("check_kernel", {**check, "operator": "aten.relu.default", "source": "", **given})
        )
        measure = {"operator": "relu", **given, "effort": "quick", "wait_seconds": 120}
        answers.append(await client.call_tool("measure_kernel", measure))
    return answers


def require_the_story(answers: list[CallToolResult]) -> None:
    wrong, why, right, speed = answers
    assert [each.is_error for each in answers] == [False] * 4, [text_of(each) for each in answers]
    feedback = fields_of(wrong)["kernels"][0]["feedback"]
    assert not feedback["right"]
    assert {case["problem"] for case in feedback["failed_cases"]} == {"nonfinite"}
    assert "expected NaN, where self = NaN" in text_of(why)
    assert fields_of(right)["kernels"][0]["feedback"]["right"]
    measured = fields_of(speed)["kernels"][0]["feedback"]
    assert measured["right"]
    (case,) = measured["performance"]
    assert case.get("bound", "memory") == "memory"
    assert "PyTorch" in text_of(speed)


def test_two_agents_at_the_same_time_check_read_why_and_measure(server: StdioServerParameters, tmp_path: Path) -> None:
    kernel = tmp_path / "relu.py"
    kernel.write_text(RELU)
    stories: list[list[CallToolResult]] = []

    async def one(by_path: Path | None) -> None:
        stories.append(await drive(server, by_path=by_path))

    async def both() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(one, None)
            group.start_soon(one, kernel)

    anyio.run(both)
    assert len(stories) == 2
    for answers in stories:
        require_the_story(answers)


# ---- the protocol, by hand

_HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "by hand", "version": "1"},
    },
}
_READY = {"jsonrpc": "2.0", "method": "notifications/initialized"}


class ByHand:
    """A client without an SDK: it sees every byte of stdout."""

    def __init__(self, process: subprocess.Popen[str], stdin: IO[str] | None = None) -> None:
        self.process, self._stdin = process, stdin or process.stdin
        self.seen: list[dict[str, Any]] = []

    def send(self, message: dict[str, Any] | str) -> None:
        assert self._stdin is not None
        self._stdin.write((message if isinstance(message, str) else json.dumps(message)) + "\n")
        self._stdin.flush()

    def wait_for(self, number: int) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message = json.loads(line)  # whatever else stands on stdout is no JSON
            assert message["jsonrpc"] == "2.0"
            self.seen.append(message)
            if message.get("id") == number:
                return message
        raise AssertionError("the server ended")

    def call(self, number: int, tool: str, **arguments: Any) -> dict[str, Any]:
        params = {"name": tool, "arguments": arguments}
        self.send({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})
        return self.wait_for(number)


@contextmanager
def by_hand(folder: Path, *more: str) -> Iterator[ByHand]:
    with subprocess.Popen(
        [*COMMAND, *more], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder
    ) as process:
        client = ByHand(process)
        client.send(_HELLO)
        client.wait_for(1)
        client.send(_READY)
        try:
            yield client
        finally:
            process.kill()


def children_of(pid: int) -> list[int]:
    """Processes below this one, at any depth."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if parent == pid:
                found += [int(folder.name), *children_of(int(folder.name))]
    return found


def wait_until(holds: Callable[[], bool], seconds: float = 15.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if holds():
            return True
        time.sleep(0.05)
    return holds()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_stdout_carries_the_protocol_and_nothing_else_and_the_server_ends_with_its_client(tmp_path: Path) -> None:
    with by_hand(tmp_path) as client:
        client.send("this is no message")
        answer = client.call(2, "check_kernel", operator="relu", source=RELU_WRONG_ON_NAN, wait_seconds=120)
        assert "expected NaN" in answer["result"]["content"][0]["text"]
        assert "must not reach the client" not in json.dumps(client.seen)
        below = children_of(client.process.pid)
        assert below
        assert client.process.stdin is not None
        client.process.stdin.close()
        assert client.process.wait(timeout=20) == 0
        assert client.process.stdout is not None
        assert client.process.stdout.read() == ""
        assert wait_until(lambda: not any(map(alive, below)))
        assert client.process.stderr is not None
        assert "Traceback" not in client.process.stderr.read()


def test_a_killed_server_leaves_no_process_behind(tmp_path: Path) -> None:
    with by_hand(tmp_path) as client:
        started = client.call(2, "start_job", kernels=[{"operator": "relu", "source": RELU_THAT_HANGS}])
        assert started["result"]["structuredContent"]["state"] == "running"
        assert wait_until(lambda: len(children_of(client.process.pid)) > 2, 30)
        below = children_of(client.process.pid)
        client.process.kill()
        client.process.wait()
        assert wait_until(lambda: not any(map(alive, below)))


def test_without_the_sdk_the_command_names_the_extra() -> None:
    code = "import sys; sys.modules['mcp'] = None\nfrom torchstone.cli import main\nsys.exit(main(['mcp']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    told = "error: torchstone mcp needs the MCP SDK. Install the extra: pip install 'torchstone[mcp]'."
    assert done.stderr.strip() == told
    assert done.stdout == ""


def test_a_wrong_option_is_one_line_and_says_nothing_on_stdout(tmp_path: Path) -> None:
    done = subprocess.run([*COMMAND, "--suite", "smoek"], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: unknown suite 'smoek'. Did you mean 'smoke'?")


def test_in_a_terminal_it_says_what_it_waits_for_and_how_an_agent_gets_it() -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(COMMAND, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        os.close(theirs)
        assert program.stderr is not None
        told = [program.stderr.readline() for _ in range(5)]
        program.send_signal(signal.SIGINT)
        answer, rest = program.communicate(timeout=60)
    os.close(ours)
    assert told[0].startswith("torchstone mcp is a server for coding agents. It waits for an MCP client on stdin")
    assert "  claude mcp add torchstone -- torchstone mcp\n" in told
    assert told[-1] == "Other agents: docs/mcp.md. Ctrl-C or Ctrl-D ends it.\n"
    assert rest.strip() == "interrupted"
    assert answer == ""


def test_ctrl_c_in_a_terminal_ends_it_at_once_with_all_its_processes(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        COMMAND, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    os.close(theirs)
    with process, os.fdopen(ours, "w") as terminal:  # stays open: nobody presses Enter
        client = ByHand(process, terminal)
        client.send(_HELLO)
        client.wait_for(1)
        client.send(_READY)
        client.call(2, "start_job", kernels=[{"operator": "relu", "source": RELU_THAT_HANGS}])
        assert wait_until(lambda: len(children_of(process.pid)) > 2, 30)
        below = children_of(process.pid)
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(timeout=20) == 130
        finally:
            process.kill()
        assert process.stderr is not None
        assert process.stderr.read().endswith("Ctrl-C or Ctrl-D ends it.\ninterrupted\n")
        assert wait_until(lambda: not any(map(alive, below)))
