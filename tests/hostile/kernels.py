"""Kernels that misbehave, each in one way, and what each must get. Written into a folder for the directory backend."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torchstone.backends import folder_name

GOOD = """
import torch
def {entry}(*args, **kwargs):
    return torch.ops.{operator}(*args, **kwargs)
"""

_ONCE = """
import torch
_done = []
def {entry}(*args, **kwargs):
    if not _done:
        _done.append(1)
{body}
    return torch.ops.{operator}(*args, **kwargs)
"""


@dataclass(frozen=True)
class Bad:
    """One way to misbehave."""

    name: str
    body: str
    """Runs inside the first call, before the honest result is returned; or a whole file if it has no indent."""
    verdict: str
    stage: str | None
    says: str = ""
    """A part of what the record must say about it."""


def _once(code: str) -> str:
    return "\n".join(f"        {line}" for line in code.strip().splitlines())


def _file(code: str) -> str:
    return f"\nimport torch\n{code.strip()}\n"


BAD = (
    Bad("raises", _once("raise ValueError('no such luck')"), "crashed", "compile", "ValueError: no such luck"),
    Bad("wrong", _file("def {entry}(*args, **kwargs):\n    return torch.ops.{operator}(*args, **kwargs) + 1"),
        "disagrees", "compile"),
    Bad("segfault", _once("import ctypes\nctypes.string_at(0)"), "crashed", "compile", "SIGSEGV"),
    Bad("exits quietly", _once("import os\nos._exit(0)"), "crashed", "compile", "exit code 0"),
    Bad("loops in Python", _once("while True: pass"), "timed_out", "compile"),
    Bad("loops in C, GIL held", _once("import re\nre.match(r'(a+)+$', 'a' * 64 + 'b')"), "timed_out", "compile"),
    Bad("memory bomb", _once("hoard = []\nwhile True: hoard.append(bytearray(64 << 20))"), "crashed", "compile",
        '"kind": "memory"'),
    Bad("fork bomb", _once("import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"),
        "crashed", "compile", '"kind": "processes"'),
    Bad("fills the disk", _once(
        "import os\ncount = 0\nwhile True:\n    count += 1\n"
        "    with open(f'fill{{count}}', 'wb') as file: file.write(b'x' * (32 << 20))"),
        "crashed", "compile", "No space left"),
    Bad("prints a third of a gigabyte", _once(
        "import os\nfor _ in range(256): os.write(1, b'spam ' * (1 << 18))"), "agrees", None),
    Bad("floods the reply pipe", _once(
        "import os\nfor fd in range(3, 64):\n    try:\n        os.set_blocking(fd, False)\n"
        "        while True: os.write(fd, b'\\xff' * 65536)\n    except OSError: pass"), "cheated", "compile", "reply"),
    Bad("corrupts the reply pipe", _once(
        "import os\nfor fd in range(3, 64):\n    try: os.write(fd, b'\\x05\\x00\\x00\\x00hello')\n"
        "    except OSError: pass"), "cheated", "compile", "reply"),
    Bad("kills its parent", _once("import os, signal\nos.kill(os.getppid(), signal.SIGKILL)"), "crashed", "compile",
        "PermissionError"),
    Bad("aborts", _once("import os\nos.abort()"), "crashed", "compile", "SIGABRT"),
    Bad("calls sys.exit", _once("raise SystemExit(0)"), "crashed", "compile", "sys.exit(0)"),
    Bad("fails at import", _file("raise RuntimeError('bad day')\ndef {entry}(*args): pass"), "crashed", "load",
        "bad day"),
    Bad("lacks the entry point", _file("def another(*args): pass"), "crashed", "load", "{entry}"),
    Bad("does not parse", "def {entry}(:\n", "crashed", "load", "SyntaxError"),
    Bad("changes its input", _file(
        "def {entry}(*args, **kwargs):\n    result = torch.ops.{operator}(*args, **kwargs)\n"
        "    args[0].add_(1)\n    return result"), "disagrees", "compile", "argument"),
    Bad("returns the wrong shape", _file(
        "def {entry}(*args, **kwargs):\n    return torch.ops.{operator}(*args, **kwargs)[:1]"),
        "disagrees", "compile", "expected"),
)  # fmt: skip


def write_kernels(folder: Path, operators: list[str]) -> dict[str, Bad]:
    """A kernel for each operator, every third one bad in a different way; returns which operator got which."""
    bad: dict[str, Bad] = {}
    for index, operator in enumerate(operators):
        name = folder_name(operator)
        entry = f"{name}_kernel_impl"
        ways = index // 3 if index % 3 == 2 else None
        if ways is not None and ways < len(BAD):
            bad[operator] = BAD[ways]
            body = bad[operator].body
            template = body if not body.startswith("        ") else _ONCE.replace("{body}", body)
        else:
            template = GOOD
        where = folder / name
        where.mkdir(parents=True)
        (where / f"{name}_implementation_v1.py").write_text(template.format(entry=entry, operator=operator))
    return bad
