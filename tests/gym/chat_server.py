"""A local server of chat completions with a script: its reply depends on how often the model has spoken before."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Script = Callable[[list[dict[str, Any]]], str]
"""The messages of a conversation -> the model's next reply."""


@contextmanager
def chat_server(script: Script) -> Iterator[str]:
    """The base URL of a server on a free port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            reply = script(request["messages"])
            if request.get("stream"):
                self._send("text/event-stream", b"".join(_events(reply)))
            else:
                self._send("application/json", json.dumps(_whole(reply)).encode())

        def _send(self, kind: str, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()


_USAGE = {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}


def _whole(reply: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": reply}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {**_head("chat.completion"), "choices": [choice], "usage": _USAGE}


def _events(reply: str) -> Iterator[bytes]:
    for delta, reason in (({"role": "assistant", "content": reply}, None), ({}, "stop")):
        yield _event({"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})
    yield _event({"choices": [], "usage": _USAGE})
    yield b"data: [DONE]\n\n"


def _event(chunk: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps({**_head("chat.completion.chunk"), **chunk}).encode() + b"\n\n"


def _head(kind: str) -> dict[str, Any]:
    return {"id": "chat-1", "object": kind, "created": 0, "model": "scripted"}
