"""Writes and reads the transcript of an operator: requests and replies, as lines for programs and a page for people.

A reply is written before it is judged. A run that is killed in between need not make, and pay for, the request again.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from torchstone.atomic_files import write_atomically
from torchstone.errors import InfrastructureError, UsageError
from torchstone.schema import decode, encode
from torchstone.schema.generation import Exchange

TRANSCRIPT = "transcript.jsonl"
PAGE = "transcript.md"


def read_exchanges(path: Path) -> tuple[Exchange, ...]:
    """The exchanges of a file, the last of each operator and number. A torn last line is left out."""
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}.") from error
    found: dict[tuple[str, int], Exchange] = {}
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        try:
            exchange = decode(line, Exchange)
        except msgspec.DecodeError as error:
            if number == len(lines):
                break  # the process died while it wrote this line
            raise InfrastructureError(f"{path}:{number} is not an exchange ({error}). Delete that line.") from error
        found[exchange.operator, exchange.number] = exchange
    return tuple(found.values())


def append_exchange(path: Path, exchange: Exchange) -> None:
    """Append a line and sync it to the disk. First cuts off an incomplete line that a killed process left."""
    with path.open("a+b") as file:
        size = file.tell()
        complete_bytes = _complete_bytes(file, size)
        if complete_bytes != size:
            file.truncate(complete_bytes)
        file.write(encode(exchange) + b"\n")
        file.flush()
        os.fdatasync(file.fileno())


def _complete_bytes(file: BinaryIO, size: int) -> int:
    """Bytes up to the end of the last complete line."""
    end = size
    while end > 0:
        start = max(0, end - 65536)
        file.seek(start)
        found = file.read(end - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def write_page(path: Path, operator: str, exchanges: Sequence[Exchange], outcomes: Mapping[int, str]) -> None:
    """Write the exchanges as a Markdown page for people. ``outcomes``: attempt number -> its outcome, in one line."""
    parts = [f"# {operator}\n"]
    for exchange in sorted(exchanges, key=lambda each: each.number):
        parts.append(f"## Attempt {exchange.number}: {outcomes.get(exchange.number, 'not judged yet')}\n")
        usage = exchange.usage
        parts.append(
            f"{exchange.model}, {usage.input_tokens} tokens in, {usage.output_tokens} out, "
            f"{exchange.asking_seconds:.1f} s\n"
        )
        parts += [f"### {message.role}\n\n{message.text}\n" for message in exchange.messages]
        parts.append(f"### reply\n\n{exchange.reply}\n")
    write_atomically(path, "\n".join(parts).encode("utf-8", "replace"))
