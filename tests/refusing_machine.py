"""Runs a command on a machine that refuses ptrace, or namespaces, as containers do: by a seccomp filter around it.

``python refusing_machine.py ptrace,namespaces -- COMMAND``. As a library: :func:`refusing`.
"""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

from torchstone.isolation import linux_calls, seccomp

PTRACE = ("ptrace", "process_vm_readv", "process_vm_writev")
NAMESPACES = ("unshare", "setns")


def refusing(what: str) -> list[str]:
    """The beginning of a command line that runs the rest on a machine that refuses this."""
    return [sys.executable, str(Path(__file__)), what, "--"]


def main() -> None:
    """Put the filter in force, then become the command."""
    refused = sys.argv[1].split(",")
    names = [*(PTRACE if "ptrace" in refused else ()), *(NAMESPACES if "namespaces" in refused else ())]
    linux_calls.no_new_privileges()
    program = seccomp.refusing(platform.machine(), names, namespaces="namespaces" in refused)
    linux_calls.seccomp_filter(program)
    command = sys.argv[sys.argv.index("--") + 1 :]
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
