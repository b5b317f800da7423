"""Finds external profilers (ncu, nsys) on this machine, and runs programs with a deadline and bounded output."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from torchstone.supervisor.ptrace_freezing import descendants

_FOLDERS = {
    "ncu": ("/usr/local/cuda*/bin", "/opt/nvidia/nsight-compute/*"),
    "nsys": ("/usr/local/cuda*/bin", "/opt/nvidia/nsight-systems/*/bin", "/opt/nvidia/nsight-systems-cli/*/bin"),
}
"""Folders (globs) into which NVIDIA's installers put a tool without adding them to the PATH."""
_READ_BYTES = 1 << 16
_VERSION_SECONDS = 30.0
_VERSION = re.compile(r"\bversion:?\s+v?(\d[\w.\-]*)", re.IGNORECASE)


class Ended(NamedTuple):
    """How a program ended."""

    exit_code: int | None
    """None: it was killed at the deadline."""
    output: str
    """The end of its stdout and stderr together."""


def find_tool(name: str) -> str | None:
    """Path of the program: from the PATH, else the newest one in the usual folders. None: not found."""
    found = shutil.which(name)
    if found is not None:
        return found
    places = [path for folder in _FOLDERS.get(name, ()) for path in glob.glob(f"{folder}/{name}")]
    return max((path for path in places if os.access(path, os.X_OK)), key=_version_key, default=None)


def _version_key(path: str) -> tuple[list[int], str]:
    """Sort key by version numbers: 12.10 is newer than 12.9."""
    return [int(number) for number in re.findall(r"\d+", path)], path


def version_of(tool: str, environment: Mapping[str, str], folder: Path) -> str | None:
    """The version that the program prints; None if it does not start."""
    ended = run([tool, "--version"], environment, folder, _VERSION_SECONDS)
    if ended.exit_code != 0:
        return None
    found = _VERSION.search(ended.output)
    return found[1] if found else "unknown"


def run(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    seconds: float,
    keep_bytes: int = 64 << 10,
) -> Ended:
    """Run the program until it ends or the deadline passes. Its process group is then killed."""
    try:
        process = subprocess.Popen(
            command,
            env=dict(environment),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        return Ended(127, f"{command[0]}: {error.strerror}")
    with process:
        try:
            output = _output_of(process, time.monotonic() + seconds, keep_bytes)
            ended = process.poll()
        finally:
            _kill(process)
    return Ended(ended, output.decode("utf-8", "replace"))


def _output_of(process: subprocess.Popen[bytes], deadline: float, keep_bytes: int) -> bytes:
    """Read output until the process ends. The pipe may stay open longer, in a child that outlives the process."""
    assert process.stdout is not None
    descriptor = process.stdout.fileno()
    os.set_blocking(descriptor, False)
    kept = bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while time.monotonic() < deadline:
            ended = process.poll() is not None
            ready = bool(selector.select(0 if ended else 0.1))
            data = _read(descriptor) if ready else b""
            kept += data
            del kept[: max(0, len(kept) - keep_bytes)]
            if not data and ready:  # the pipe is closed, the process about to end
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, deadline - time.monotonic()))
                break
            if ended and not data:
                break
    return bytes(kept)


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, _READ_BYTES)
    except BlockingIOError:
        return b""


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the process group. If the process is alive, also kill descendants that left the group."""
    if process.poll() is None:
        for pid in descendants(process.pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
