"""The sandboxed process for third-party files: enters the sandbox, then answers requests of its parent.

The parent's end is ``confined_handle.py``. The module that answers is imported before the sandbox is closed, so that
its imports need no rights inside. A warden, process 1 of the sandbox, ends all its processes as soon as the parent
closes a pipe, the leash.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from torchstone.isolation import linux_calls, sandbox
from torchstone.isolation.confined_handle import Hello, exit_code_of
from torchstone.processes.keeper import forget_children, in_child, kill_descendants, wait_for_end, watch_children
from torchstone.processes.msgpack_framing import frame
from torchstone.schema import decode

Serve = Callable[[socket.socket], None]


def main() -> None:
    """``python -m torchstone.isolation.confined_process CONNECTION LEASH POLICY MODULE``."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command line handles Ctrl-C
    connection, leash = int(sys.argv[1]), int(sys.argv[2])
    cell = sandbox.Cell(decode(sys.argv[3].encode(), sandbox.Policy))
    serve: Serve = importlib.import_module(sys.argv[4]).serve
    readable = sandbox.readable_paths()
    sandbox.enter_namespaces(cell)
    warden = os.fork()
    if warden == 0:
        in_child(lambda: _run_warden(cell, readable, connection, leash, serve))
    os.close(connection)
    _, status = os.waitpid(warden, 0)
    os._exit(exit_code_of(status))


def _run_warden(cell: sandbox.Cell, readable: tuple[str, ...], connection: int, leash: int, serve: Serve) -> None:
    """Build the file view, fork the process that answers, and wait until it ends or the parent closes the leash."""
    os.setsid()
    wake_read, wake_write = watch_children()
    linux_calls.adopt_orphans()
    sandbox.build_view(cell, readable)
    child = os.fork()
    if child == 0:
        forget_children(leash, wake_read, wake_write)
        in_child(lambda: _serve(cell, readable, connection, serve))
    os.close(connection)
    status = wait_for_end(child, leash, wake_read)
    if not cell.own_processes:
        kill_descendants()
    if cell.scratch != sandbox.SCRATCH_IN_VIEW:
        shutil.rmtree(cell.scratch, ignore_errors=True)
    os._exit(exit_code_of(status) if status is not None else 0)


def _serve(cell: sandbox.Cell, readable: tuple[str, ...], connection: int, serve: Serve) -> None:
    """Close the sandbox, report its layers, and answer requests until the parent closes the connection."""
    sandbox.restrict_process(cell, readable)
    _use_scratch(Path(cell.scratch))
    ours = socket.socket(fileno=connection)
    ours.sendall(frame(Hello(cell.layers)))
    with contextlib.suppress(ConnectionError):
        serve(ours)


def _use_scratch(scratch: Path) -> None:
    """Make libraries keep their files in the scratch folder."""
    os.chdir(scratch)
    temporary = str(scratch / "tmp")
    os.environ.update(HOME=str(scratch), USER="problem", TMPDIR=temporary, XDG_CACHE_HOME=str(scratch / "cache"))
    os.environ.update(TRITON_CACHE_DIR=str(scratch / "triton"), TORCHINDUCTOR_CACHE_DIR=str(scratch / "inductor"))
    sys.dont_write_bytecode = True


if __name__ == "__main__":
    main()
