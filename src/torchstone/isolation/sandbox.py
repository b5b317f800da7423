"""Builds the sandbox that separates a candidate from the machine.

Three steps, each made by another process on the way to a worker (see ``zygote.py``):

1. :func:`enter_namespaces`: new namespaces for processes, mounts, network, IPC and host name (by root, or through a
   user namespace if every user may create one);
2. :func:`build_view`: a new root with the system and Python read-only, the device files, a private ``/proc`` and a
   private scratch folder of bounded size. Other files cannot be reached;
3. :func:`restrict_process`: resource limits, another uid, no capabilities, Landlock, seccomp.

A layer that the machine refuses is left out and noted with the reason. Every record lists the layers in force. The
sandbox does not protect against:

- bugs of the kernel and of the GPU driver;
- leaks of the device between processes that share it (cache timing, uncleared memory);
- anything, with `isolation none`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import secrets
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from torchstone.isolation import linux_calls, seccomp
from torchstone.schema import IsolationLevel, Layer, Limits

SCRATCH_IN_VIEW = "/scratch"

LAYERS = ("processes", "files", "network", "ipc", "uid", "capabilities", "landlock", "seccomp", "limits")
"""All layers, in the order of reports. `strict` needs all of them."""

_SYSTEM_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/sys")
_THREADS_PER_PROCESS = 4
"""Factor from processes to RLIMIT_NPROC, which counts threads too. The judge checks the limit on processes itself."""
_DEVICE_FILES = ("null", "zero", "full", "random", "urandom")
_GPU_DEVICE_PREFIXES = ("nvidia", "kfd", "dri")


class Policy(msgspec.Struct, frozen=True):
    """What the judge requests for a worker's sandbox."""

    level: IsolationLevel
    limits: Limits
    device_type: str
    staging: str
    """The judge's private, empty folder, in which file views are built."""
    cores: tuple[int, ...] = ()
    """The CPU cores that the worker is bound to; empty: all."""
    threads: int = 1
    device_at_start: bool = True
    few_queues: bool = False
    """Open a device with few work queues, in half the time. Then only two streams run concurrently."""


class Cell:
    """The sandbox of one worker while it is being built: which layers are in force so far."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._found: dict[str, Layer] = {}
        self.user_namespace = False
        self.own_processes = False
        self.own_mounts = False
        self.scratch = ""
        # A separate uid, so that the limit on processes counts only those of this worker.
        self.uid = 1_000_000_000 + secrets.randbelow(1 << 24)

    @property
    def layers(self) -> tuple[Layer, ...]:
        return tuple(self._found.get(name, Layer(name, False, "not asked for")) for name in LAYERS)

    def note(self, name: str, detail: str) -> None:
        self._found[name] = Layer(name, True, detail)

    def note_missing(self, name: str, reason: str) -> None:
        self._found[name] = Layer(name, False, reason)

    def attempt(self, name: str, detail: str, step: Callable[[], None]) -> bool:
        """Make a step and note whether the layer is in force, with ``detail`` or the reason; return whether it is."""
        try:
            step()
        except OSError as error:
            self.note_missing(name, error.strerror or str(error))
            return False
        self.note(name, detail)
        return True


def enter_namespaces(cell: Cell) -> None:
    """Step 1: enter new namespaces. Called by the process whose next child is the worker's warden."""
    if cell.policy.level == "none":
        return
    wanted = (
        linux_calls.CLONE_NEWNS
        | linux_calls.CLONE_NEWPID
        | linux_calls.CLONE_NEWNET
        | linux_calls.CLONE_NEWIPC
        | linux_calls.CLONE_NEWUTS
    )
    try:
        linux_calls.unshare(wanted)
    except OSError as refused:
        uid, gid = os.geteuid(), os.getegid()
        try:
            linux_calls.unshare(wanted | linux_calls.CLONE_NEWUSER)
            _map_user(uid, gid)
        except OSError as error:
            reason = f"{refused.strerror}; user namespace: {error.strerror}"
            for name in ("processes", "files", "network", "ipc"):
                cell.note_missing(name, reason)
            return
        cell.user_namespace = True
    cell.own_processes = cell.own_mounts = True
    how = ", inside a user namespace" if cell.user_namespace else ""
    cell.note("processes", f"own pid namespace{how}: sees and signals only itself")
    cell.note("network", f"own network namespace{how}: no interface")
    cell.note("ipc", f"own IPC namespace{how}")


def _map_user(uid: int, gid: int) -> None:
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")


def build_view(cell: Cell, readable: tuple[str, ...]) -> None:
    """Step 2: build the file view. Called by the warden (process 1 of the new pid namespace)."""
    if cell.own_mounts and cell.attempt(
        "files", "own root, read-only except scratch", lambda: _build_root(cell, readable)
    ):
        cell.scratch = SCRATCH_IN_VIEW
        return
    cell.scratch = str(Path(cell.policy.staging) / f"scratch-{secrets.token_hex(8)}")
    Path(cell.scratch).mkdir(mode=0o700)
    _prepare_scratch(cell.scratch)
    # The worker owns its folder only if it will have that uid: root without capabilities cannot enter it otherwise.
    if os.geteuid() == 0 and cell.policy.level != "none" and _may_change_uid(cell):
        for folder in (cell.scratch, f"{cell.scratch}/tmp"):
            os.chown(folder, cell.uid, cell.uid)


def _build_root(cell: Cell, readable: tuple[str, ...]) -> None:
    """Mount a new root with the allowed files, and make it the root of this process."""
    root = str(Path(cell.policy.staging) / "root")
    os.makedirs(root, exist_ok=True)
    linux_calls.mount("none", "/", None, linux_calls.MS_REC | linux_calls.MS_PRIVATE)
    linux_calls.mount("tmpfs", root, "tmpfs", linux_calls.MS_NOSUID | linux_calls.MS_NODEV, "size=4m,mode=755")
    for path in _without_nested((*_SYSTEM_FOLDERS, *readable)):
        _show(path, root)
    _show_devices(cell, root)
    _mount_proc(root)
    # The scratch folder is in memory: it ends with the namespace, and its size is the disk limit.
    owner = f"uid={cell.uid},gid={cell.uid}," if os.geteuid() == 0 and not cell.user_namespace else ""
    size = cell.policy.limits.scratch_bytes
    scratch = root + SCRATCH_IN_VIEW
    os.mkdir(scratch)
    flags = linux_calls.MS_NOSUID | linux_calls.MS_NODEV
    linux_calls.mount("tmpfs", scratch, "tmpfs", flags, f"{owner}size={size},nr_inodes=262144,mode=700")
    _prepare_scratch(scratch)
    if not os.path.exists(f"{root}/tmp"):  # it exists if Python itself is installed below /tmp
        os.symlink(f"{SCRATCH_IN_VIEW}/tmp", f"{root}/tmp")
    if owner:
        os.chown(f"{scratch}/tmp", cell.uid, cell.uid)
    linux_calls.mount(
        "none", root, None, linux_calls.MS_REMOUNT | linux_calls.MS_BIND | linux_calls.MS_RDONLY | linux_calls.MS_NOSUID
    )
    linux_calls.change_root(root)


def _without_nested(paths: tuple[str, ...]) -> list[str]:
    """The existing paths, sorted, without those that lie inside another one."""
    kept: list[str] = []
    for path in sorted({os.path.normpath(path) for path in paths if os.path.lexists(path)}):
        if not any(path == folder or path.startswith(folder + "/") for folder in kept):
            kept.append(path)
    return kept


def _show(path: str, root: str) -> None:
    """Mount a path of the machine at the same path of the new root, read-only. Links stay links."""
    target = root + path
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.islink(path):
        os.symlink(os.readlink(path), target)
        return
    if os.path.isdir(path):
        os.makedirs(target, exist_ok=True)
    else:
        Path(target).touch()
    linux_calls.mount(path, target, None, linux_calls.MS_BIND | linux_calls.MS_REC)
    linux_calls.make_read_only(target)


def _show_devices(cell: Cell, root: str) -> None:
    names = list(_DEVICE_FILES)
    if cell.policy.device_type != "cpu":
        names += [name for name in os.listdir("/dev") if name.startswith(_GPU_DEVICE_PREFIXES)]
    os.mkdir(f"{root}/dev")
    for name in names:
        source, target = f"/dev/{name}", f"{root}/dev/{name}"
        if os.path.isdir(source):
            os.mkdir(target)
        elif os.path.exists(source):
            Path(target).touch()
        else:
            continue
        linux_calls.mount(source, target, None, linux_calls.MS_BIND | linux_calls.MS_REC)
    os.symlink("/proc/self/fd", f"{root}/dev/fd")
    os.mkdir(f"{root}/dev/shm")
    # Semaphores of multiprocessing live here; private, so that nothing is left for the next worker.
    linux_calls.mount(
        "tmpfs", f"{root}/dev/shm", "tmpfs", linux_calls.MS_NOSUID | linux_calls.MS_NODEV, "size=64m,mode=1777"
    )


def _mount_proc(root: str) -> None:
    os.mkdir(f"{root}/proc")
    try:
        linux_calls.mount("proc", f"{root}/proc", "proc", linux_calls.MS_NOSUID | linux_calls.MS_NODEV)
    except OSError as error:
        if error.errno != errno.EPERM:
            raise
        # Inside a container whose /proc is partly masked, the kernel refuses a new one. The pid namespace still
        # protects other processes from signals and from reads of their memory.
        linux_calls.mount("/proc", f"{root}/proc", None, linux_calls.MS_BIND | linux_calls.MS_REC)


def _prepare_scratch(scratch: str) -> None:
    os.mkdir(f"{scratch}/tmp", mode=0o700)


def restrict_process(cell: Cell, readable: tuple[str, ...]) -> None:
    """Step 3: restrict the process itself. Called by the worker before it loads candidate code."""
    policy = cell.policy
    if policy.cores:
        os.sched_setaffinity(0, policy.cores)
    if policy.level == "none":
        linux_calls.die_with_parent(signal.SIGKILL)
        return
    _change_uid(cell)
    cell.attempt("limits", "memory, processes, files", lambda: _limit_resources(cell))
    cell.attempt("capabilities", "none, and none can be gained", _drop_privileges)
    linux_calls.set_dumpable(True)  # CUDA reads its own /proc entries, which belong to root otherwise
    linux_calls.die_with_parent(signal.SIGKILL)
    _prefer_for_oom()
    version = linux_calls.landlock_version()
    if version == 0:
        cell.note_missing("landlock", "this kernel has none (Linux 5.13 or newer, CONFIG_SECURITY_LANDLOCK)")
    else:
        cell.attempt("landlock", f"ABI {version}", lambda: _enforce_landlock(cell, readable, version))
    cell.attempt("seccomp", "dangerous system calls refused", seccomp.install)


def _change_uid(cell: Cell) -> None:
    if cell.user_namespace:
        cell.note("uid", "user namespace: no rights outside it")
        return
    if os.geteuid() != 0:
        cell.note_missing("uid", "needs root or user namespaces (sysctl user.max_user_namespaces)")
        return

    def change() -> None:
        os.setgroups([])
        os.setresgid(cell.uid, cell.uid, cell.uid)
        os.setresuid(cell.uid, cell.uid, cell.uid)

    if not _may_change_uid(cell):
        cell.note_missing("uid", "Python's own files are not readable for other users")
        return
    cell.attempt("uid", f"uid {cell.uid}, used by nothing else", change)


def _may_change_uid(cell: Cell) -> bool:
    """Whether a process with another uid can still read Python's files."""
    return cell.own_mounts or _readable_by_others()


def _readable_by_others() -> bool:
    """Whether every folder from the root to Python's files may be entered by other users."""
    for start in {sys.prefix, sys.base_prefix, str(Path(__file__).parent)}:
        path = Path(start).resolve()
        if any(not folder.stat().st_mode & 0o001 for folder in (path, *path.parents)):
            return False
    return True


def _limit_resources(cell: Cell) -> None:
    limits = cell.policy.limits
    table = [
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_DATA, limits.memory_bytes),
    ]
    # The kernel counts processes per user, so the limit needs a uid of the worker's own. The judge counts as well.
    if cell.user_namespace or os.geteuid() == cell.uid:
        table.append((resource.RLIMIT_NPROC, limits.processes * _THREADS_PER_PROCESS))
    for kind, value in table:
        _, hard = resource.getrlimit(kind)
        capped = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (capped, capped))


def _drop_privileges() -> None:
    linux_calls.no_new_privileges()
    linux_calls.drop_capabilities()


def _prefer_for_oom() -> None:
    """Make the kernel kill the worker, not the judge, if the machine runs out of memory."""
    with contextlib.suppress(OSError):  # a hint only; the memory limit is enforced elsewhere
        Path("/proc/self/oom_score_adj").write_text("1000")


# Landlock's file rights. A later ABI has more of them.
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MODIFY_TREE = sum(1 << bit for bit in range(4, 13))
_REFER, _TRUNCATE, _IOCTL_DEVICE = 1 << 13, 1 << 14, 1 << 15
_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE


def _enforce_landlock(cell: Cell, readable: tuple[str, ...], version: int) -> None:
    """Restrict file, network and signal access by Landlock, as far as this ABI version can."""
    read = _EXECUTE | _READ_FILE | _READ_DIR
    write = _WRITE_FILE | _MODIFY_TREE
    write |= _REFER if version >= 2 else 0
    write |= _TRUNCATE if version >= 3 else 0
    device = _IOCTL_DEVICE if version >= 5 else 0
    ruleset = linux_calls.landlock_ruleset(
        read | write | device,
        network=0b11 if version >= 4 else 0,  # no bind and no connect over TCP
        scopes=0b11 if version >= 6 else 0,  # abstract Unix sockets and signals only within the sandbox
    )
    # With a root of its own, the worker may read every file in it; without one, only these folders.
    readable_roots = ("/",) if cell.scratch == SCRATCH_IN_VIEW else (*_SYSTEM_FOLDERS, *readable, "/proc")
    for path in readable_roots:
        _allow(ruleset, path, read)
    _allow(ruleset, cell.scratch, read | write)
    _allow(ruleset, "/dev/shm", read | write if cell.scratch == SCRATCH_IN_VIEW else 0)
    # CUDA writes to the process's own /proc entries while it starts. This uid cannot write to those of others.
    _allow(ruleset, "/proc", read | write if cell.policy.device_type != "cpu" else read)
    for name in (*_DEVICE_FILES, *(n for n in os.listdir("/dev") if n.startswith(_GPU_DEVICE_PREFIXES))):
        _allow(ruleset, f"/dev/{name}", read | _WRITE_FILE | device)
    linux_calls.landlock_enforce(ruleset)
    os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    if not rights or not os.path.exists(path):
        return
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        linux_calls.landlock_allow(ruleset, descriptor, rights if os.path.isdir(path) else rights & _ON_FILES)
    finally:
        os.close(descriptor)


def readable_paths() -> tuple[str, ...]:
    """Paths that Python needs for imports, and kernels need to compile: prefixes, packages, compilers, CUDA."""
    here = Path(__file__).resolve().parents[1]
    candidates = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix, str(here)}
    candidates |= {path for path in sys.path if path}
    for variable in ("CUDA_HOME", "CUDA_PATH", "LD_LIBRARY_PATH"):
        candidates |= {path for path in os.environ.get(variable, "").split(":") if path}
    for compiler in (os.environ.get("CC"), os.environ.get("CXX"), "gcc", "g++", "nvcc"):
        found = shutil.which(compiler) if compiler else None
        if found:
            candidates.add(str(Path(found).resolve().parents[1]))
    candidates |= {os.path.realpath(path) for path in candidates} | {os.path.realpath(sys.executable)}
    too_wide = {"/", "/home", "/root", "/tmp", "/var", os.path.expanduser("~")}
    return tuple(sorted(path for path in candidates if os.path.exists(path) and path not in too_wide))
