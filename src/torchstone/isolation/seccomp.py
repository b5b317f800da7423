"""Builds and installs the seccomp filter: the system calls that a candidate may not make.

The list names refused calls, not allowed ones. Kernels are arbitrary programs (compilers run inside them), and a list
of allowed calls would break honest ones with every new libc. A refused call returns EPERM, so that a library with a
fallback continues. Namespaces, Landlock and the uid are the main layers. This one closes ways around them: other
processes' memory, kernel interfaces with a history of bugs, new namespaces, priorities.
"""

from __future__ import annotations

import platform
import struct
from collections.abc import Sequence

from torchstone.isolation import linux_calls

_REFUSED = {
    # name: (x86_64, aarch64); None: the architecture has no such call
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "process_madvise": (440, 440),
    "perf_event_open": (298, 241),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "unshare": (272, 97),
    "setns": (308, 268),
    "open_by_handle_at": (304, 265),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "iopl": (172, None),
    "ioperm": (173, None),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    # Further filters count for no limit, and the kernel frees them long after their process has ended.
    "seccomp": (317, 277),
    "landlock_create_ruleset": (444, 444),
    "landlock_add_rule": (445, 445),
    "landlock_restrict_self": (446, 446),
    # Memory that belongs to no process, and counts for no limit.
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    # More cores or a higher priority than the reference has would make a kernel look faster.
    "sched_setaffinity": (203, 122),
    "sched_setscheduler": (144, 119),
    "sched_setattr": (314, 274),
    "setpriority": (141, 140),
}
_REFUSED_WITH = {
    # name: (x86_64, aarch64), index of an argument, and its refused values
    # Larger pages, or holes that read as zeros, in memory that the judge provides in the same way for all parties.
    "madvise": ((28, 233), 2, (9, 14, 25)),  # MADV_REMOVE, MADV_HUGEPAGE, MADV_COLLAPSE
    # Filters, as by seccomp; a core whose sibling thread runs nothing else.
    "prctl": ((157, 167), 0, (22, 62)),  # PR_SET_SECCOMP, PR_SCHED_CORE
}
_FALLOCATE = (285, 47)
_MORE_THAN_ALLOCATING = 0xFFFFFFFE
"""All flags of fallocate except "keep the size". One of them makes holes."""
_SOCKET = (41, 198)
_CLONE = (56, 220)
_CLONE3 = (435, 435)
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_NEW_NAMESPACES = 0x7E020000
_AF_UNIX = 1

_LOAD_NUMBER, _LOAD_ARCH, _LOAD_ARG0 = 0, 4, 16
_ARGUMENT_BYTES = 8
_ALLOW = 0x7FFF0000
_REFUSE = 0x00050000 | 1  # EPERM
_NO_SUCH_CALL = 0x00050000 | 38  # ENOSYS: libc falls back to clone(2), whose flags a filter can read


def _load(offset: int) -> bytes:
    return struct.pack("HBBI", 0x20, 0, 0, offset)


def _jump_equal(value: int, if_true: int, if_false: int) -> bytes:
    return struct.pack("HBBI", 0x15, if_true, if_false, value)


def _jump_at_least(value: int, if_true: int, if_false: int) -> bytes:
    return struct.pack("HBBI", 0x35, if_true, if_false, value)


def _jump_any_bit(mask: int, if_true: int, if_false: int) -> bytes:
    return struct.pack("HBBI", 0x45, if_true, if_false, mask)


def _answer(action: int) -> bytes:
    return struct.pack("HBBI", 0x06, 0, 0, action)


def _refused_with(number: int, argument: int, values: Sequence[int]) -> list[bytes]:
    """Refuse a call if an argument has one of these values. Compares the lower 32 bits: the kernel takes an int."""
    return [
        _jump_equal(number, 0, 2 + 2 * len(values)),
        _load(_LOAD_ARG0 + _ARGUMENT_BYTES * argument),
        *(code for value in values for code in (_jump_equal(value, 0, 1), _answer(_REFUSE))),
        _load(_LOAD_NUMBER),
    ]


def _refused_with_bits(number: int, argument: int, mask: int) -> list[bytes]:
    """Refuse a call if an argument has any of the bits of the mask."""
    return [
        _jump_equal(number, 0, 4),
        _load(_LOAD_ARG0 + _ARGUMENT_BYTES * argument),
        _jump_any_bit(mask, 0, 1),
        _answer(_REFUSE),
        _load(_LOAD_NUMBER),
    ]


def program(machine: str) -> bytes:
    """The BPF program for this architecture."""
    if machine not in _AUDIT_ARCH:
        raise OSError(38, f"seccomp: no table for {machine}")
    column = 0 if machine == "x86_64" else 1
    code = [
        _load(_LOAD_ARCH),
        _jump_equal(_AUDIT_ARCH[machine], 1, 0),
        _answer(_REFUSE),  # calls of another architecture (32 bit) have other numbers
        _load(_LOAD_NUMBER),
        _jump_at_least(0x40000000, 0, 1),
        _answer(_REFUSE),  # calls of x32 have other numbers, too
    ]
    for numbers in _REFUSED.values():
        number = numbers[column]
        if number is not None:
            code += [_jump_equal(number, 0, 1), _answer(_REFUSE)]
    for calls, argument, values in _REFUSED_WITH.values():
        code += _refused_with(calls[column], argument, values)
    code += [_jump_equal(_CLONE3[column], 0, 1), _answer(_NO_SUCH_CALL)]
    code += _refused_with_bits(_CLONE[column], 0, _NEW_NAMESPACES)
    code += _refused_with_bits(_FALLOCATE[column], 1, _MORE_THAN_ALLOCATING)
    code += [
        _jump_equal(_SOCKET[column], 0, 3),
        _load(_LOAD_ARG0),
        _jump_equal(_AF_UNIX, 1, 0),
        _answer(_REFUSE),
        _answer(_ALLOW),
    ]
    return b"".join(code)


def refusing(machine: str, names: Sequence[str], *, namespaces: bool) -> bytes:
    """A program that refuses only these calls, and new namespaces on request, as a plain container or gVisor may.

    Used to test Torchstone under such restrictions.
    """
    column = 0 if machine == "x86_64" else 1
    code = [_load(_LOAD_NUMBER)]
    for number in (_REFUSED[name][column] for name in names):
        assert number is not None
        code += [_jump_equal(number, 0, 1), _answer(_REFUSE)]
    if namespaces:
        code += [_jump_equal(_CLONE3[column], 0, 1), _answer(_NO_SUCH_CALL)]
        code += _refused_with_bits(_CLONE[column], 0, _NEW_NAMESPACES)
    return b"".join([*code, _answer(_ALLOW)])


def install() -> None:
    """Install the filter. Needs no_new_privs or CAP_SYS_ADMIN."""
    linux_calls.seccomp_filter(program(platform.machine()))
