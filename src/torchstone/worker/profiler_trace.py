"""Makes calls under torch's profiler, and writes their Chrome trace. Runs in the worker; never timed, never judged.

The trace goes into a memory file of the caller, whose size is sealed. So the caller reads no path of the sandbox, and
a kernel cannot make the file longer.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence

import torch

from torchstone.protocol.commands import Trace
from torchstone.worker.cuda_graph_recording import PreparedCall

_COPY_BYTES = 1 << 20


def trace(calls: Sequence[PreparedCall], command: Trace, descriptor: int, device: torch.device) -> int:
    """Trace the calls, and return the trace's size in bytes. It is written only if the memory file has room for it."""
    on_cuda = device.type == "cuda"
    for index in range(command.warmup_calls):
        function, args, kwargs = calls[index % len(calls)]
        function(*args, **kwargs)
    if on_cuda:
        torch.cuda.synchronize(device)
    activities = [torch.profiler.ProfilerActivity.CPU]
    activities += [torch.profiler.ProfilerActivity.CUDA] if on_cuda else []
    with torch.profiler.profile(activities=activities, record_shapes=True) as profile:
        for index in range(command.calls):
            function, args, kwargs = calls[(command.warmup_calls + index) % len(calls)]
            with torch.profiler.record_function(f"torchstone: call {index}"):
                function(*args, **kwargs)
        if on_cuda:
            torch.cuda.synchronize(device)
    return _write_if_it_fits(profile, command.room_bytes, descriptor)


def _write_if_it_fits(profile: torch.profiler.profile, room_bytes: int, descriptor: int) -> int:
    """Write the trace into the memory file if it has room, close the file, and return the trace's size in bytes."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "trace.json")
            profile.export_chrome_trace(path)
            size = os.path.getsize(path)
            if size <= room_bytes:
                _copy(path, descriptor)
            return size
    finally:
        os.close(descriptor)


def _copy(path: str, descriptor: int) -> None:
    with open(path, "rb") as file:
        while data := file.read(_COPY_BYTES):
            while data:
                data = data[os.write(descriptor, data) :]
