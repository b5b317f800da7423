"""Start the real command line on the sixty jobs, with the suite installed as a plugin."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hostile.kernels import Bad, write_kernels
from hostile.sixty import sixty_cases

TESTS = Path(__file__).resolve().parents[1]
SOURCE = TESTS.parent / "src"


@dataclass(frozen=True)
class RunFolder:
    """A folder with kernels, a plugin and, after the run, its records."""

    root: Path

    @classmethod
    def prepare(cls, root: Path) -> tuple[RunFolder, dict[str, Bad]]:
        bad = write_kernels(root / "kernels", [case.operator for case in sixty_cases()])
        metadata = root / "plugin" / "sixty_suite-1.0.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: sixty-suite\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text("[torchstone.suites]\nsixty = hostile.sixty:SixtySuite\n")
        return cls(root), bad

    @property
    def journal(self) -> Path:
        return self.root / "runs" / "sixty" / "records.jsonl"

    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.journal.read_text().splitlines()]

    def command(self, *more: str) -> list[str]:
        return [
            *(sys.executable, "-m", "torchstone", "run", "--suite", "sixty", "--backend", "directory"),
            *("--kernels-dir", str(self.root / "kernels"), "--output-dir", str(self.root / "runs")),
            *("--run-id", "sixty", "--device", "cpu", "--effort", "quick", "--memory-limit", "1GiB"),
            *("--scratch-limit", "128MiB", "--process-limit", "64"),
            *("--compile-timeout", "6", "--load-timeout", "20", *more),
        ]

    def environment(self) -> dict[str, str]:
        paths = [str(self.root / "plugin"), str(TESTS), str(SOURCE), os.environ.get("PYTHONPATH", "")]
        (self.root / "tmp").mkdir(exist_ok=True)
        return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "TMPDIR": str(self.root / "tmp")}

    def wait_for_end(self, seconds: float = 10) -> list[str]:
        """What is left of the run's processes after a moment: the zygote ends by itself when its judge has."""
        deadline = time.monotonic() + seconds
        while (found := self.leftovers()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return found

    def leftovers(self) -> list[str]:
        """Processes of this run that still exist: its judge by its folder, zygotes and workers by their staging."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                folder = os.readlink(f"/proc/{pid}/cwd")
                if "torchstone" in command and (str(self.root) in command or folder == str(self.root)):
                    found.append(f"{pid}: {command}")
        return found


def run_sixty(run: RunFolder, *more: str, seconds: float = 240) -> subprocess.CompletedProcess[str]:
    """The whole run, start to end."""
    return subprocess.run(
        run.command(*more), env=run.environment(), cwd=run.root, capture_output=True, text=True, timeout=seconds
    )
