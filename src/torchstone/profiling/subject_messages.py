"""Messages to and from the process that runs a kernel or a benchmark under a profiler (the subject).

They are files in the subject's scratch folder. The kernel could have written its reply, which decides only the text of
a notice.
"""

from __future__ import annotations

import msgspec

from torchstone.schema import Case, Implementation

ORDER = "order.json"
SAID = "said.json"
MOST_SAID_BYTES = 64 << 10


class KernelOnCase(msgspec.Struct, frozen=True, tag="kernel"):
    """A kernel, on inputs of one case. Not trusted."""

    case: Case
    implementation: Implementation


class BenchmarkFile(msgspec.Struct, frozen=True, tag="benchmark", kw_only=True):
    """A benchmark file: the user's own code, run with the user's environment and rights."""

    path: str
    root: str
    """The folder that holds the chapters; importable while the file loads."""
    seed: int
    deterministic: bool = False
    marks_ranges: bool = True
    """NVTX ranges around setup, warm-up and each call."""
    variables: dict[str, str] = {}
    """Those of the environment that choose the device."""


class ProfileOrder(msgspec.Struct, frozen=True):
    """Which calls to make."""

    what: KernelOnCase | BenchmarkFile
    device_type: str
    calls: int
    warmup_calls: int
    threads: int
    seconds: int
    """After which it ends itself, should nobody be left to do that."""
    file_bytes: int
    """Longest file that a kernel may write."""


class Said(msgspec.Struct, frozen=True):
    """How it went."""

    done: bool
    message: str = ""
    """Why not."""
