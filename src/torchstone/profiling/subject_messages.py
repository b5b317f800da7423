"""Messages to and from the process that runs a kernel or a benchmark under a profiler (the subject).

They are files in the subject's scratch folder. The kernel could forge the reply, which only decides the text of a
notice.
"""

from __future__ import annotations

import msgspec

from torchstone.schema import Case, Implementation

ORDER = "order.json"
OUTCOME_FILE = "outcome.json"
MOST_OUTCOME_BYTES = 64 << 10


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
    """Environment variables that select the device."""


class ProfileOrder(msgspec.Struct, frozen=True):
    """Order to the subject process: what to run, and how often."""

    what: KernelOnCase | BenchmarkFile
    device_type: str
    calls: int
    warmup_calls: int
    threads: int
    seconds: int
    """Time after which the process ends itself, in case its parent is gone."""
    file_bytes: int
    """Longest file that a kernel may write."""


class ProfileOutcome(msgspec.Struct, frozen=True):
    """Outcome of the order."""

    done: bool
    message: str = ""
    """Why the calls were not completed."""
