"""Problem files with ``Model``, ``get_inputs`` and ``get_init_inputs``, from a folder that the user has.

Each file is one case: the model, called with weights and inputs of the problem's sizes. What a problem takes is found
out by running it, in a process of its own.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec

from torchstone.errors import InfrastructureError, UsageError
from torchstone.schema import Case
from torchstone.suites.base import CaseQuery, selects
from torchstone.suites.catalogue import Exclusion, Progress

_EXPECTED = "Give the folder of problems: --source KernelBench/KernelBench, or one of its levels."


class ProblemOrder(msgspec.Struct, frozen=True):
    """Read one problem."""

    operator: str
    name: str
    """Of the file, for people."""
    text: str


class Read(msgspec.Struct, frozen=True):
    """What came of it: one of the two."""

    case: Case | None = None
    exclusion: Exclusion | None = None


class KernelBenchSuite:
    """Problem files with a Model, from a folder of yours: --source FOLDER."""

    uses = frozenset({"source"})

    def __init__(self) -> None:
        self._progress: Progress = lambda done, total, what: None
        self._read: dict[Path, Read] = {}

    def report_progress_to(self, progress: Progress) -> None:
        """Who wants to know how many problems have been read."""
        self._progress = progress

    def cases(self, query: CaseQuery) -> tuple[Case, ...]:
        """One for each problem, in the order of their names."""
        return tuple(read.case for read in self._all(query) if read.case is not None)

    def left_out(self, query: CaseQuery) -> dict[str, int]:
        """Problems that are no cases, by reason."""
        found = [read.exclusion for read in self._all(query) if read.exclusion is not None]
        return dict(Counter(f"{item.source}: {item.reason}" for item in found))

    def _all(self, query: CaseQuery) -> list[Read]:
        chosen = [(path, name) for path, name in problems_in(query.source) if selects(query, name)]
        unread = [(path, name) for path, name in chosen if path not in self._read]
        for done, ((path, _), read) in enumerate(zip(unread, _ask(unread), strict=True), 1):
            self._read[path] = read
            self._progress(done, len(unread), "problems")
        return [self._read[path] for path, _ in chosen]


def problems_in(source: str | None) -> list[tuple[Path, str]]:
    """The problem files of a folder with the names of their operators."""
    if source is None:
        raise UsageError(f"suite 'kernelbench' has no problems of its own. {_EXPECTED}")
    root = Path(source)
    if not root.is_dir():
        raise UsageError(f"there is no folder '{source}'. {_EXPECTED}")
    files = sorted(path for path in root.rglob("*.py") if _is_problem(path))
    if not files:
        raise UsageError(f"no file in '{source}' defines a class Model and get_inputs. {_EXPECTED}")
    return [(path, operator_of(path.relative_to(root))) for path in files]


def operator_of(path: Path) -> str:
    """``level1/19_ReLU.py`` -> ``kernelbench.level1__19_ReLU.default``; a name that torch takes for an operator."""
    words = "__".join(path.with_suffix("").parts)
    plain = re.sub(r"\W", "_", words, flags=re.ASCII)
    return f"kernelbench.{plain if not plain[0].isdigit() else 'p' + plain}.default"


def _is_problem(path: Path) -> bool:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    return bool(re.search(r"^class Model\b", text, re.MULTILINE)) and "def get_inputs" in text


def _ask(problems: list[tuple[Path, str]]) -> Iterator[Read]:
    """Answers in their order; a problem that ends the process is left out, and the next one gets another."""
    waiting = list(problems)
    while waiting:
        with _started() as process:
            while waiting:
                path, operator = waiting.pop(0)
                answer = _answer(process, path, operator)
                yield answer or Read(exclusion=Exclusion(operator, "the process that ran it died", path.name))
                if answer is None:
                    break
            process.kill()


def _started() -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "torchstone.suites.kernelbench_reader"]
    environment = {**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    try:
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
        )
    except OSError as error:
        raise InfrastructureError(f"no process to read problems can be started: {error}") from error


def _answer(process: subprocess.Popen[bytes], path: Path, operator: str) -> Read | None:
    assert process.stdin is not None
    assert process.stdout is not None
    order = ProblemOrder(operator, path.name, path.read_text(encoding="utf-8"))
    try:
        process.stdin.write(msgspec.json.encode(order) + b"\n")
        process.stdin.flush()
    except OSError:
        return None
    line = process.stdout.readline()
    return msgspec.json.decode(line, type=Read) if line else None
