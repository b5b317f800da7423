"""Linux system calls that Python lacks: namespaces, mounts, Landlock, seccomp, capabilities, ptrace, others' memory.

Nearly every function makes one system call, and raises ``OSError`` if the kernel refuses it. ``sandbox.py`` builds the
sandbox with some of them. The judge uses others to freeze workers and read their memory.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Callable

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18
MNT_DETACH = 2

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_CAPBSET_DROP = 24
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38

_AT_FDCWD = -100
_AT_RECURSIVE = 0x8000
_MOUNT_ATTR_RDONLY = 1
_MOUNT_ATTR_NOSUID = 2

# These have the same number on x86_64 and aarch64: system calls added since 2019 share one table.
_SYS_MOUNT_SETATTR = 442
_SYS_LANDLOCK_CREATE_RULESET = 444
_SYS_LANDLOCK_ADD_RULE = 445
_SYS_LANDLOCK_RESTRICT_SELF = 446
_SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_SYS_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SYS_CAPSET = {"x86_64": 126, "aarch64": 91}

_libc = ctypes.CDLL(None, use_errno=True)
_libc_ptrace = _libc.ptrace
_libc_ptrace.restype = ctypes.c_long
_libc_ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)


def _call(name: str, result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return result


def _number(table: dict[str, int], name: str) -> int:
    machine = platform.machine()
    if machine not in table:
        raise OSError(38, f"{name}: not known for {machine}")
    return table[machine]


def unshare(flags: int) -> None:
    """Enter new, empty namespaces of the kinds that the flags name."""
    _call("unshare", _libc.unshare(ctypes.c_int(flags)))


def mount(source: str, target: str, kind: str | None = None, flags: int = 0, data: str | None = None) -> None:
    """mount(2)."""
    encoded = [None if text is None else text.encode() for text in (source, target, kind, data)]
    _call(f"mount {target}", _libc.mount(encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3]))


def unmount(target: str, flags: int = 0) -> None:
    """umount2(2)."""
    _call(f"unmount {target}", _libc.umount2(target.encode(), ctypes.c_int(flags)))


def make_read_only(target: str) -> None:
    """Make the mount at the target and every mount below it read-only, without set-uid. Keeps flags that are locked."""
    attributes = ctypes.create_string_buffer(struct.pack("QQQQ", _MOUNT_ATTR_RDONLY | _MOUNT_ATTR_NOSUID, 0, 0, 0))
    result = _libc.syscall(
        _SYS_MOUNT_SETATTR,
        ctypes.c_int(_AT_FDCWD),
        target.encode(),
        ctypes.c_uint(_AT_RECURSIVE),
        attributes,
        ctypes.c_size_t(32),
    )
    _call(f"mount_setattr {target}", result)


def change_root(new_root: str) -> None:
    """Make the folder the root of this mount namespace. The earlier root can no longer be reached."""
    os.chdir(new_root)
    _call("pivot_root", _libc.syscall(_number(_SYS_PIVOT_ROOT, "pivot_root"), b".", b"."))
    unmount(".", MNT_DETACH)
    os.chdir("/")


def keep_freed_memory() -> None:
    """Make malloc keep freed memory instead of returning it to the kernel.

    Otherwise a large result may cost page faults at every call, depending on what else lies on the heap of the process.
    Then the same kernel is three times slower in one worker than in another. Forks inherit the setting.
    """
    trim_threshold, map_threshold = -1, -3
    _libc.mallopt(trim_threshold, 1 << 30)
    _libc.mallopt(map_threshold, 32 << 20)


VectorCall = Callable[[int, int, int, int], int]
"""Takes a pid, the addresses of two arrays of ``struct iovec`` (in this process, in the other one), and their length.
Returns the number of copied bytes."""


def process_vm_readv(pid: int, here: int, there: int, count: int) -> int:
    """Copy from another process's memory."""
    return _move_memory("process_vm_readv", pid, here, there, count)


def process_vm_writev(pid: int, here: int, there: int, count: int) -> int:
    """Copy into another process's memory."""
    return _move_memory("process_vm_writev", pid, here, there, count)


def _move_memory(name: str, pid: int, here: int, there: int, count: int) -> int:
    size = ctypes.c_ulong(count)
    function = _libc[name]
    function.restype = ctypes.c_ssize_t
    result = function(ctypes.c_int(pid), ctypes.c_void_p(here), size, ctypes.c_void_p(there), size, ctypes.c_ulong(0))
    return _call(name, result)


def trace(thread: int) -> None:
    """Become the tracer of a thread. The thread runs on until it is interrupted."""
    seize = 0x4206
    _ptrace("PTRACE_SEIZE", seize, thread, 0)


def interrupt(thread: int) -> None:
    """Make a traced thread stop as soon as it leaves the kernel. Only its tracer can resume it; no signal can."""
    interrupt_request = 0x4207
    _ptrace("PTRACE_INTERRUPT", interrupt_request, thread, 0)


def stop_of(thread: int) -> int | None:
    """The signal that a traced thread was about to get when it stopped, 0 if none; None while it still runs.

    Raises ``ProcessLookupError`` if it has ended, which reaps it.
    """
    any_thread = 0x40000000
    pid, status = os.waitpid(thread, any_thread | os.WNOHANG)
    if pid == 0:
        return None
    if not os.WIFSTOPPED(status):
        raise ProcessLookupError(3, f"thread {thread} ended")
    event_stop = 128
    return 0 if status >> 16 == event_stop else os.WSTOPSIG(status)


def untrace(thread: int, signal_number: int) -> None:
    """Resume a stopped thread, with the signal that it was about to get, and stop tracing it."""
    detach = 17
    _ptrace("PTRACE_DETACH", detach, thread, signal_number)


def _ptrace(name: str, request: int, thread: int, data: int) -> None:
    if _libc_ptrace(request, thread, None, data) < 0:
        _call(name, -1)


def timer() -> int:
    """A timer's descriptor. Reading it blocks until the time of the last :func:`set_timer` is over."""
    monotonic, close_on_exec = 1, 0o2000000
    return _call("timerfd_create", _libc.timerfd_create(monotonic, close_on_exec))


def set_timer(descriptor: int, seconds: float) -> None:
    """Make the timer's descriptor readable after this time; 0: never."""
    whole = int(seconds)
    _call(
        "timerfd_settime",
        _libc.timerfd_settime(descriptor, 0, struct.pack("qqqq", 0, 0, whole, int((seconds - whole) * 1e9)), None),
    )


def _prctl(name: str, option: int, value: int) -> None:
    _call(name, _libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0))


def die_with_parent(signal_number: int) -> None:
    """Request this signal for the parent's end. A change of uid clears this, so call it afterwards."""
    _prctl("prctl PDEATHSIG", _PR_SET_PDEATHSIG, signal_number)


def set_dumpable(allowed: bool) -> None:
    """Allow or forbid processes of the same uid to trace this one or read its memory."""
    _prctl("prctl DUMPABLE", _PR_SET_DUMPABLE, int(allowed))


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends."""
    _prctl("prctl SUBREAPER", _PR_SET_CHILD_SUBREAPER, 1)


def no_new_privileges() -> None:
    """Make set-uid programs and file capabilities ineffective from now on."""
    _prctl("prctl NO_NEW_PRIVS", _PR_SET_NO_NEW_PRIVS, 1)


def drop_capabilities() -> None:
    """Give up every capability, in this process and all that it starts."""
    for capability in range(64):
        if _libc.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0) != 0:
            break  # beyond the kernel's last one, or not permitted: the sets below are cleared in any case
    header = ctypes.create_string_buffer(struct.pack("Ii", 0x20080522, 0))
    nothing = ctypes.create_string_buffer(24)
    _call("capset", _libc.syscall(_number(_SYS_CAPSET, "capset"), header, nothing))


def landlock_version() -> int:
    """The Landlock ABI of this kernel; 0: none."""
    return max(0, int(_libc.syscall(_SYS_LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(1))))


def landlock_ruleset(files: int, network: int, scopes: int) -> int:
    """Create a rule set that restricts these rights; return its descriptor. The ABI must have all of them."""
    version = landlock_version()
    size = 8 if version < 4 else 16 if version < 6 else 24
    attributes = ctypes.create_string_buffer(struct.pack("QQQ", files, network, scopes))
    result = _libc.syscall(_SYS_LANDLOCK_CREATE_RULESET, attributes, ctypes.c_size_t(size), ctypes.c_uint(0))
    return _call("landlock_create_ruleset", result)


def landlock_allow(ruleset: int, path_descriptor: int, rights: int) -> None:
    """Allow these rights beneath an open path."""
    rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, path_descriptor))
    result = _libc.syscall(_SYS_LANDLOCK_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(1), rule, ctypes.c_uint(0))
    _call("landlock_add_rule", result)


def landlock_enforce(ruleset: int) -> None:
    """Restrict this thread and all that it starts to the rule set."""
    result = _libc.syscall(_SYS_LANDLOCK_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint(0))
    _call("landlock_restrict_self", result)


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def seccomp_filter(instructions: bytes) -> None:
    """Install a classic BPF program over system calls for every thread of this process."""
    code = ctypes.create_string_buffer(instructions, len(instructions))
    program = _FilterProgram(len(instructions) // 8, ctypes.cast(code, ctypes.c_void_p))
    set_mode_filter, all_threads = 1, 1
    result = _libc.syscall(
        _number(_SYS_SECCOMP, "seccomp"),
        ctypes.c_uint(set_mode_filter),
        ctypes.c_uint(all_threads),
        ctypes.byref(program),
    )
    if result > 0:
        raise OSError(3, f"seccomp: thread {result} could not be bound")
    _call("seccomp", result)
