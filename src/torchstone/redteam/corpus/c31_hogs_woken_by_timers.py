# title: children spin on the reference's core; a timer of the kernel's sends SIGCONT after the judge has stopped them all
# family: 31
# kind: cheat
# case: mm_timed -> cheated | no-credit | crashed
# twin: h_twin_mm
import ctypes
import mmap
import os
import signal
import struct
import subprocess
import sys
import threading
import time

import torch

_HOG = """
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
int main(void) {
    volatile char *go = mmap(0, 4096, PROT_READ, MAP_SHARED, open("go", O_RDONLY), 0);
    setsid(); /* the scheduler shares the core out among sessions */
    for (;;) { while (!*go) usleep(200); while (*go); }
}
"""
_CONT = 18
_HOGS = 4
_WAKE_NS = 12_000_000
_libc = ctypes.CDLL(None, use_errno=True)
_state = {"bound": None, "ended": 0, "hogs": []}

with open("go", "wb") as _file:
    _file.write(bytes(4096))
with open("go", "r+b") as _file:
    _go = mmap.mmap(_file.fileno(), 4096)
with open("hog.c", "w") as _file:
    _file.write(_HOG)
subprocess.run(["gcc", "-O1", "-static", "hog.c", "-o", "hog"], check=True)


def _make_timer():
    """A POSIX timer that sends SIGCONT to this very process; the handler is any harmless function."""
    _libc.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
    _libc.signal(_CONT, ctypes.cast(_libc.getppid, ctypes.c_void_p))
    event = ctypes.create_string_buffer(struct.pack("Qii48x", 0, _CONT, 0))
    timer = ctypes.c_void_p()
    assert _libc.timer_create(1, event, ctypes.byref(timer)) == 0
    return timer


def _conduct(values):
    """Let the others spin once the judge is busy elsewhere, until values come for the kernel."""
    head = None
    while True:
        time.sleep(0.0001)
        if _state["ended"] and time.monotonic_ns() > _state["ended"] + _WAKE_NS:
            _state["ended"] = 0
            head = values[0]
            _go[0] = 1
            for pid in _state["hogs"]:
                os.kill(pid, signal.SIGCONT)
        elif _go[0] and values[0] != head:
            _go[0] = 0


def _begin(bound):
    _state["bound"] = bound
    _state["timer"] = _make_timer()
    values = bound._tensors[0][0].numpy().reshape(-1)
    _state["hogs"] += [subprocess.Popen(["./hog"]).pid for _ in range(_HOGS)]
    threading.Thread(target=_conduct, args=(values,), daemon=True).start()


def kernel(x, y):
    _go[0] = 0
    _state["ended"] = 0
    caller = sys._getframe(1).f_locals
    bound = caller.get("self")
    if _state["bound"] is None and len(getattr(bound, "_tensors", ())) > 1:
        _begin(bound)
    result = torch.mm(x, y)
    if _state["bound"] is not None and len(caller.get("results", ())) == caller.get("count", 0) - 1:
        _state["ended"] = time.monotonic_ns()
        soon = ctypes.create_string_buffer(struct.pack("qqqq", 0, 0, 0, _WAKE_NS))
        _libc.timer_settime(_state["timer"], 0, soon, None)
    return result
