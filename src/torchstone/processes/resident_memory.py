"""Reads how much memory a process uses, as Linux counts it, to enforce limits on trees of processes."""

from __future__ import annotations

from pathlib import Path


def resident_bytes(pid: int) -> int:
    """Bytes of a process's private and shared-memory pages; not file pages (libraries), which workers share."""
    return _kilobyte_fields(f"/proc/{pid}/status", ("RssAnon", "RssShmem")) << 10


def proportional_bytes(pid: int) -> int:
    """As :func:`resident_bytes`, but a page that n processes share counts as 1/n. Takes longer to read."""
    proportional = _kilobyte_fields(f"/proc/{pid}/smaps_rollup", ("Pss_Anon", "Pss_Shmem")) << 10
    return proportional or resident_bytes(pid)


def _kilobyte_fields(path: str, names: tuple[str, ...]) -> int:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return 0
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    return sum(int(fields.get(name, "0 kB").split()[0]) for name in names)
