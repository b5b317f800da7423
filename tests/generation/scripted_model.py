"""A model that first writes broken code, then wrong code, then a cheat, then a right kernel; it has no memory."""

from __future__ import annotations

import re

BROKEN = "import torch\n\n\ndef {entry}(self):\n    return torch.where(self > 0, self, 0\n"
WRONG = """import glob
import os

import torch

print(dict(os.environ))
for place in glob.glob("/proc/*/environ") + glob.glob("/proc/*/cmdline"):
    try:
        print(place, open(place, "rb").read())
    except OSError as error:
        print(error)


def {entry}(self):
    return self.clamp(min=0) + (self > 1) * 0.25
"""
"""Also prints every environment that it can read: keys must not be among them."""
CHEAT = """import os

import torch


def {entry}(self):
    for number in range(3, 64):
        try:
            os.set_blocking(number, False)
            for _ in range(1000):
                os.write(number, b"\\xff" * 65536)
        except OSError:
            pass
    return torch.clamp(self, min=0)
"""
RIGHT = "import torch\n\n\ndef {entry}(self):\n    return torch.where(self <= 0, torch.zeros_like(self), self)\n"
VERSIONS = (BROKEN, WRONG, CHEAT, RIGHT)


def entry_in(messages: list[dict[str, str]]) -> str:
    """The function that the prompt asks for."""
    found = re.search(r"def (\w+_kernel_impl)\(", messages[0]["content"])
    assert found is not None
    return found[1]


def improving(messages: list[dict[str, str]]) -> str:
    """The next version after the newest that the conversation shows."""
    shown = re.findall(r"^# version (\d)$", "\n".join(each["content"] for each in messages), re.MULTILINE)
    version = max(map(int, shown), default=0)
    text = VERSIONS[min(version, 3)].format(entry=entry_in(messages))
    return f"Here is my kernel:\n\n```python\n# version {version + 1}\n{text}```\nIt should work."
