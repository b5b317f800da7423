"""A server on loopback that speaks Anthropic's Messages API and chat completions, streaming or not, and can fail."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Script = Callable[[list[dict[str, str]]], str]
Faults = Callable[[int], str | None]
"""Number of the request -> how it fails; None: it does not."""


class ModelServer(ThreadingHTTPServer):
    """Answers by a script. ``faults`` names: HTTP statuses, garbage, cut, cut-clean, hang, uncounted (no tokens)."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, script: Script, faults: Faults, delay_seconds: float, retry_after: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script, self.faults, self.delay_seconds, self.retry_after = script, faults, delay_seconds, retry_after
        self.bodies: list[dict[str, Any]] = []
        self.keys: set[str] = set()
        self.failed: list[str] = []
        self.arrived: list[float] = []
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no error of the test's."""


@contextmanager
def model_server(
    script: Script,
    faults: Faults = lambda number: None,
    delay_seconds: float = 0.0,
    retry_after: str = "0.2",
) -> Iterator[ModelServer]:
    """The server, for as long as the block lasts."""
    server = ModelServer(script, faults, delay_seconds, retry_after)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ModelServer

    def log_message(self, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        key = self.headers.get("x-api-key") or self.headers.get("authorization", "").removeprefix("Bearer ")
        with self.server.lock:
            self.server.bodies.append(body)
            self.server.keys.add(key)
            self.server.arrived.append(time.monotonic())
            fault = self.server.faults(len(self.server.bodies))
            if fault is not None:
                self.server.failed.append(fault)
        time.sleep(self.server.delay_seconds)
        if fault is not None and fault.isdigit():
            self._fail(int(fault), key)
        elif fault == "garbage":
            self._send(200, b"<html>upstream \xff\xfe</html>", "text/html")
        elif fault == "hang":
            time.sleep(30)
        elif self.path.endswith("/messages"):
            self._answer(body, fault, _anthropic_events, _anthropic_message)
        else:
            self._answer(body, fault, _openai_events, _openai_message)

    def _fail(self, status: int, key: str) -> None:
        # A careless server tells the key that it was given.
        error = {"type": "error", "error": {"type": "api_error", "message": f"no luck with key {key}"}}
        self._send(status, json.dumps(error).encode(), "application/json", {"retry-after": self.server.retry_after})

    def _answer(self, body: dict[str, Any], fault: str | None, events: Any, message: Any) -> None:
        text = self.server.script(body["messages"])
        if not body.get("stream"):
            answer = message(text)
            if fault == "uncounted":
                del answer["usage"]
            data = json.dumps(answer).encode()
            if fault in ("cut", "cut-clean"):
                self._send(200, data[: len(data) // 2], "application/json", {}, len(data))
                self._cut()
            else:
                self._send(200, data, "application/json")
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        parts = [part for part in events(text) if fault != "uncounted" or b'"usage"' not in part]
        for part in parts[: len(parts) // 2] if fault in ("cut", "cut-clean") else parts:
            self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        if fault == "cut":
            self._cut()
        else:
            self.wfile.write(b"0\r\n\r\n")  # the end of an HTTP reply, whether the model had ended or not

    def _send(
        self, status: int, data: bytes, kind: str, headers: dict[str, str] | None = None, length: int | None = None
    ) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data) if length is None else length))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def _cut(self) -> None:
        self.wfile.flush()
        self.close_connection = True
        self.connection.shutdown(2)


def _pieces(text: str) -> Iterator[str]:
    for place in range(0, len(text), 40):
        yield text[place : place + 40]


def _event(name: str | None, data: Any) -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data)}\n\n".encode()


_ANTHROPIC = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-scripted"}
_OPENAI = {"id": "chat_1", "created": 1, "model": "scripted"}


def _anthropic_message(text: str) -> dict[str, Any]:
    usage = {"input_tokens": 100, "output_tokens": 50, "cache_read_input_tokens": 20}
    content = [{"type": "text", "text": text}]
    return {**_ANTHROPIC, "content": content, "stop_reason": "end_turn", "stop_sequence": None, "usage": usage}


def _anthropic_events(text: str) -> Iterator[bytes]:
    usage = {"input_tokens": 100, "output_tokens": 1, "cache_read_input_tokens": 20}
    start = {**_ANTHROPIC, "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
    yield _event("message_start", {"type": "message_start", "message": start})
    block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    yield _event("content_block_start", block)
    for piece in _pieces(text):
        delta = {"type": "text_delta", "text": piece}
        yield _event("content_block_delta", {"type": "content_block_delta", "index": 0, "delta": delta})
    yield _event("content_block_stop", {"type": "content_block_stop", "index": 0})
    ending = {"stop_reason": "end_turn", "stop_sequence": None}
    yield _event("message_delta", {"type": "message_delta", "delta": ending, "usage": {"output_tokens": 50}})
    yield _event("message_stop", {"type": "message_stop"})


_OPENAI_USAGE = {
    "prompt_tokens": 120,
    "completion_tokens": 50,
    "total_tokens": 170,
    "prompt_tokens_details": {"cached_tokens": 20},
}


def _openai_message(text: str) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return {**_OPENAI, "object": "chat.completion", "choices": [choice], "usage": _OPENAI_USAGE}


def _openai_events(text: str) -> Iterator[bytes]:
    kind = {**_OPENAI, "object": "chat.completion.chunk"}
    for piece in _pieces(text):
        choice = {"index": 0, "delta": {"role": "assistant", "content": piece}, "finish_reason": None}
        yield _event(None, {**kind, "choices": [choice]})
    yield _event(None, {**kind, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    yield _event(None, {**kind, "choices": [], "usage": _OPENAI_USAGE})
    yield b"data: [DONE]\n\n"
