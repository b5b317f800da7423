"""Reads how much memory a process uses, as Linux counts it, to enforce limits on trees of processes."""

from __future__ import annotations

from pathlib import Path


def resident_bytes(pid: int) -> int:
    """Private and shared-memory pages; file pages (libraries) are shared by all workers and not counted."""
    return _kilobyte_fields(f"/proc/{pid}/status", ("RssAnon", "RssShmem")) << 10


def proportional_bytes(pid: int) -> int:
    """The same, with pages that n processes share counted as one n-th. Slower to read."""
    proportional = _kilobyte_fields(f"/proc/{pid}/smaps_rollup", ("Pss_Anon", "Pss_Shmem")) << 10
    return proportional or resident_bytes(pid)


def _kilobyte_fields(path: str, names: tuple[str, ...]) -> int:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return 0
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    return sum(int(fields.get(name, "0 kB").split()[0]) for name in names)
