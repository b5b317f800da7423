"""The zygote: a process with torch imported and no device touched, which forks a worker on request.

It starts with a cleaned environment: a fork inherits memory, so API keys would be on its stack. For each command it
forks a helper that enters the new namespaces and forks the *warden*, process 1 of the worker's pid namespace. The
warden builds the file view and forks the worker proper. It stays outside the candidate's reach and reports how the
worker ended. The judge holds one end of a pipe, the *leash*. When that end is closed, the warden ends, and with it
every process of the namespace. If the judge is killed, the leash closes too.

The zygote has one thread: a fork copies only one, and Landlock restricts only one.
"""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
import socket
import sys

from torchstone.isolation import linux_calls, sandbox
from torchstone.processes.keeper import forget_children, in_child, kill_descendants, wait_for_end, watch_children
from torchstone.protocol.commands import Spawn
from torchstone.protocol.json_framing import HEADER_BYTES, frame, frame_length
from torchstone.protocol.replies import Ending
from torchstone.schema import decode
from torchstone.worker import compiler_warm_up

DESCRIPTORS = 5
"""Number of descriptors that come with every Spawn: commands, replies, log, status and leash, in this order."""


def main() -> None:
    """``python -m torchstone.worker.zygote CONTROL_DESCRIPTOR STAGING DEVICE_TYPE PRELOAD``."""
    control = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command line handles Ctrl-C
    prepare(sys.argv[3], sys.argv[4], sys.argv[2])
    serve(control, sys.argv[2])


def prepare(device_type: str, preload: str, folder: str) -> None:
    """Import modules and fill free memory, once for all forks. ``folder`` is for temporary files."""
    linux_calls.keep_freed_memory()
    _import_all(device_type, preload, folder)
    from torchstone.worker.dirty_memory import fill_heap_with_garbage  # late, because it imports torch

    fill_heap_with_garbage()


def serve(control: socket.socket, staging: str) -> None:
    """Fork workers for the other end of the socket, until it closes."""
    readable = sandbox.readable_paths()
    compiler_warm_up.read_torch_kernels()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # helpers and wardens are reaped by the kernel
    linux_calls.adopt_orphans()
    gc.freeze()
    control.sendall(b"R")
    with contextlib.suppress(ConnectionError):
        while (request := _receive(control)) is not None:
            policy, descriptors = request
            _fork_helper(control, policy, descriptors, readable)
    shutil.rmtree(staging, ignore_errors=True)  # the judge is gone, perhaps killed: nothing may stay behind


def receive_staging(control: socket.socket) -> str | None:
    """Receive the judge's folder for workers, in a zygote that was forked before its judge. None: the judge is gone."""
    header = control.recv(HEADER_BYTES, socket.MSG_WAITALL)
    if len(header) < HEADER_BYTES:
        return None
    return decode(control.recv(frame_length(header), socket.MSG_WAITALL), str)


def _import_all(device_type: str, preload: str, staging: str) -> None:
    """Import what candidates import, without using a device. Only a GPU needs torch's compiler, which takes seconds."""
    import torch

    import torchstone.worker.command_loop  # noqa: F401
    from torchstone.worker import attribution

    torch.set_num_threads(1)
    attribution.warm_up()
    if preload == "torch" and device_type != "cpu":
        return
    if preload == "compiler" and device_type != "cpu":
        import torch._dynamo
    with contextlib.suppress(ImportError):
        import triton  # noqa: F401

        if device_type != "cpu":
            compiler_warm_up.warm_up(staging)


def _receive(control: socket.socket) -> tuple[sandbox.Policy, list[int]] | None:
    """The policy and the descriptors of the next Spawn. None: the judge closed the socket."""
    header, descriptors, _, _ = socket.recv_fds(control, HEADER_BYTES, DESCRIPTORS)
    if len(header) < HEADER_BYTES:
        return None
    length = frame_length(header)
    data = b""
    while len(data) < length:
        chunk = control.recv(length - len(data))
        if not chunk:
            return None
        data += chunk
    return decode(decode(data, Spawn).policy, sandbox.Policy), descriptors


def _fork_helper(
    control: socket.socket, policy: sandbox.Policy, descriptors: list[int], readable: tuple[str, ...]
) -> None:
    """Fork the helper that starts a warden, and close the descriptors that it inherited."""
    if os.fork() == 0:
        control.close()
        in_child(lambda: _start_warden(policy, descriptors, readable))
    for descriptor in descriptors:
        os.close(descriptor)


def _start_warden(policy: sandbox.Policy, descriptors: list[int], readable: tuple[str, ...]) -> None:
    """Enter new namespaces, fork the warden as process 1 of them, and send the judge its pid outside."""
    status = descriptors[3]
    cell = sandbox.Cell(policy)
    sandbox.enter_namespaces(cell)
    warden = os.fork()
    if warden == 0:
        in_child(lambda: _run_warden(cell, descriptors, readable))
    os.write(status, frame(warden))


def _run_warden(cell: sandbox.Cell, descriptors: list[int], readable: tuple[str, ...]) -> None:
    """Fork the worker, wait until it ends or the judge closes the leash, then end every process of the worker."""
    commands, replies, log, status, leash = descriptors
    os.setsid()
    wake_read, wake_write = watch_children()
    linux_calls.adopt_orphans()  # without a pid namespace, the warden still becomes the parent of orphans
    sandbox.build_view(cell, readable)
    worker = os.fork()
    if worker == 0:
        forget_children(status, leash, wake_read, wake_write)
        from torchstone.worker import command_loop

        command_loop.main(cell, readable, commands, replies, log)
    for descriptor in (commands, replies, log):
        os.close(descriptor)
    wait_status = wait_for_end(worker, leash, wake_read)
    if not cell.own_processes:
        kill_descendants()
    if cell.scratch != sandbox.SCRATCH_IN_VIEW:
        shutil.rmtree(cell.scratch, ignore_errors=True)
    if wait_status is not None:
        with contextlib.suppress(OSError):
            os.write(status, frame(_ending(wait_status)))


def _ending(wait_status: int) -> Ending:
    if os.WIFSIGNALED(wait_status):
        return Ending(None, os.WTERMSIG(wait_status))
    return Ending(os.WEXITSTATUS(wait_status), None)


if __name__ == "__main__":
    main()
