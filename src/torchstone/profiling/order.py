"""What is said to a subject, the process that runs a kernel under an external profiler, and what it says back.

Files in the subject's scratch folder. What it says back could have been written by the kernel, and decides nothing but
the words of a notice.
"""

from __future__ import annotations

import msgspec

from torchstone.schema import Case, Implementation

ORDER = "order.json"
SAID = "said.json"
MOST_SAID_BYTES = 64 << 10


class Order(msgspec.Struct, frozen=True):
    """Which calls to make."""

    case: Case
    implementation: Implementation
    device_type: str
    calls: int
    warmup_calls: int
    threads: int
    seconds: int
    """After which it ends itself, should nobody be left to do that."""
    file_bytes: int
    """Longest file that it may write."""


class Said(msgspec.Struct, frozen=True):
    """How it went."""

    done: bool
    message: str = ""
    """Why not."""
