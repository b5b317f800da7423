"""Suite `kernelbench`: models in KernelBench's format, from problem files of a user's folder.

A problem file defines ``Model``, ``get_inputs`` and perhaps ``get_init_inputs``. Each file is one case: the model,
called with weights and inputs of the problem's sizes. Which values they may have is found out by running the file, in a
process with the sandbox of a kernel.
"""

from __future__ import annotations

import os
import queue
import re
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import nullcontext
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from torchstone.errors import InfrastructureError, UsageError
from torchstone.isolation.confined_handle import Confined, ConfinedEndedError, ConfinedTimeoutError
from torchstone.operator_categories import base_name
from torchstone.processes.free_memory import free_host_bytes
from torchstone.schema import Case, content_key
from torchstone.suites.base import CaseQuery, Quiet, selects
from torchstone.suites.case_cache import Exclusion, Index, KeptCatalogue, Part, PlacedCase, Prepared, Progress
from torchstone.suites.problem_memory_reservation import ProblemMemory

READER_VERSION = 3
"""Raise it when the same problems would give other cases, so that cached cases are not used."""
_MOST_READERS = {"cpu": 2, "cuda": 2}
"""Processes that read problems at the same time. Each may hold the inputs and results of one problem."""
_READ_SECONDS = 120.0
"""Time for one problem: enough to run its model once or twice, not many times."""
_LEAST_BYTES = {"cpu": 2 << 30, "cuda": 16 << 30}
"""Host memory of a reader process, in bytes, without any problem. torch needs some, a device's driver much more."""
_FIRST_HOST_SHARE = 1 / 2
"""Share of the host's free memory that limits all reader processes together, when they start."""
_READER = "torchstone.suites.kernelbench_reader"
_CHECKOUT = "KernelBench"
"""Folder with the levels in a checkout of KernelBench. Other folders of a checkout hold example problems."""
_LEVEL = re.compile(r"level_?\d+")
_EXPECTED = "Give the folder of problems: a checkout (--source KernelBench), or one of its levels."


class ProblemOrder(msgspec.Struct, frozen=True):
    """Read one problem."""

    operator: str
    name: str
    """Name of the file, for messages."""
    text: str
    device_type: str = "cpu"
    """Where the problem is run to learn its inputs."""
    granted_bytes: int = 0
    """Memory of the device that the reader may use for the problem."""
    most_bytes: int = 0
    """The most that could be granted."""
    is_reserved: bool = False
    """Whether the granted memory is reserved for this problem."""


class Read(msgspec.Struct, frozen=True):
    """The answer to an order. One of its fields is set."""

    case: Case | None = None
    exclusion: Exclusion | None = None
    wanted_bytes: int = 0
    """Memory of the device that reading the problem needs, more than was granted."""


class KernelBenchSuite:
    """Problem files with a Model, from a folder of yours: --source FOLDER."""

    uses = frozenset({"source"})

    def __init__(self) -> None:
        self._progress: Progress = lambda done, total, what: None
        self._read: dict[Path, Read] = {}

    def report_progress_to(self, progress: Progress) -> None:
        """Set the function that receives how many problems have been read."""
        self._progress = progress

    def cases(self, query: CaseQuery) -> tuple[Case, ...]:
        """A case for each problem that can be judged, in the order of their names."""
        return tuple(read.case for read in self._all(query) if read.case is not None)

    def operators(self, query: CaseQuery) -> tuple[str, ...]:
        """The operator of every problem file that fits the query, whether it has a case or not. Nothing is run."""
        return tuple(name for _, name in problems_in(query.source) if selects(query, name))

    def left_out(self, query: CaseQuery) -> dict[str, int]:
        """How many problems did not become cases, by reason."""
        return _reasons(self._all(query))

    def arriving(self, query: CaseQuery, quiet: Quiet = nullcontext) -> ProblemArrivals:
        """The cases of the query. Those of problems that were read before are ready, the others are yielded later."""
        return ProblemArrivals(self._chosen(query), self._read, query, quiet, self._progress)

    def _all(self, query: CaseQuery) -> list[Read]:
        arrivals = self.arriving(query)
        for _ in arrivals:
            pass
        return arrivals.read

    def _chosen(self, query: CaseQuery) -> list[tuple[Path, str]]:
        problems = problems_in(query.source)
        _refuse_ambiguous(query, problems)
        chosen = _sampled([(path, name) for path, name in problems if selects(query, name)], query)
        for path, name in chosen:
            if path not in self._read and (known := _cached_answer(query, name, path)) is not None:
                self._read[path] = known
        return chosen


class ProblemArrivals:
    """Cases of problems, some of which are read already. Implements :class:`torchstone.suites.base.Arrivals`."""

    def __init__(
        self,
        chosen: list[tuple[Path, str]],
        read: dict[Path, Read],
        query: CaseQuery,
        quiet: Quiet,
        progress: Progress,
    ) -> None:
        self._chosen, self._read, self._query, self._progress = chosen, read, query, progress
        self._unread = [(path, name) for path, name in chosen if path not in read]
        self.ready = tuple(each.case for each in self.read if each.case is not None)
        self.awaited = tuple(name for _, name in self._unread)
        self._reading = ProblemReading(self._unread, query.device_type, quiet)

    @property
    def read(self) -> list[Read]:
        """The answers so far, in the order of the problems."""
        return [self._read[path] for path, _ in self._chosen if path in self._read]

    def __iter__(self) -> Iterator[tuple[str, Case | None]]:
        for done, (path, name, read) in enumerate(self._reading, 1):
            self._read[path] = read
            _cache_answer(self._query, name, path, read)
            self._progress(done, len(self._unread), "problems")
            yield name, read.case

    def stop(self) -> None:
        """Stop reading. Reader processes that work on a problem are killed."""
        self._reading.stop()

    def left_out(self) -> dict[str, int]:
        """How many problems did not become cases so far, by reason."""
        return _reasons(self.read)


def _reasons(read: list[Read]) -> dict[str, int]:
    found = [each.exclusion for each in read if each.exclusion is not None]
    return dict(Counter(f"{item.source}: {item.reason}" for item in found))


def _refuse_ambiguous(query: CaseQuery, problems: list[tuple[Path, str]]) -> None:
    """Raise a `UsageError` for a file name that several problems (of different levels) have."""
    for name in query.operators or ():
        own = [base_name(operator) for path, operator in problems if path.stem == name.removesuffix(".py")]
        if len(own) > 1:
            raise UsageError(f"'{name}' is the file name of {len(own)} problems. Name one of {', '.join(own)}.")


def _sampled(problems: list[tuple[Path, str]], query: CaseQuery) -> list[tuple[Path, str]]:
    """The problems that `--sample` selects, before any is read. All if other options select among the cases."""
    if query.sample is None or query.expression is not None or query.keys is not None:
        return problems
    ranked = sorted(problems, key=lambda problem: content_key("sample", problem[1]))
    kept = set(ranked[: query.sample])
    return [problem for problem in problems if problem in kept]


def _catalogue(query: CaseQuery) -> KeptCatalogue:
    try:
        torch_version = version("torch")
    except PackageNotFoundError:
        torch_version = ""
    return KeptCatalogue("kernelbench", torch_version, query.device_type, READER_VERSION)


def _cache_key(operator: str, path: Path) -> str:
    return content_key(operator, _text(path))


def _cached_answer(query: CaseQuery, operator: str, path: Path) -> Read | None:
    """The cached answer for a file with this content, for this torch and type of device. None: there is none.

    An answer that the problem is too large counts only if its memory would not be free now, either.
    """
    part = _catalogue(query).part(_cache_key(operator, path))
    if part is None:
        return None
    if part.cases:
        return Read(part.cases[0].case)
    too_large = [each for each in part.exclusions if each.needed_bytes > _most_free_bytes(query.device_type)]
    return Read(exclusion=msgspec.structs.replace(too_large[0], source=path.name)) if too_large else None


def _cache_answer(query: CaseQuery, operator: str, path: Path, read: Read) -> None:
    """Cache a case, or how much memory the problem needs. Other failures may be temporary and are not cached."""
    key = _cache_key(operator, path)
    if read.case is not None:
        part = Part(key, cases=(PlacedCase(read.case, (0, 0, 0)),))
    elif read.exclusion is not None and read.exclusion.needed_bytes:
        part = Part(key, exclusions=(read.exclusion,))
    else:
        return
    _catalogue(query).write(Prepared(Index(()), {key: part}))


def _most_free_bytes(device_type: str) -> int:
    """Memory that a problem may use now if it is read alone."""
    return ProblemMemory(device_type).usable_bytes


def problems_in(source: str | None) -> list[tuple[Path, str]]:
    """The problem files of a folder with the names of their operators."""
    if source is None:
        raise UsageError(f"suite 'kernelbench' has no problems of its own. {_EXPECTED}")
    root = Path(source)
    if not root.is_dir():
        raise UsageError(f"there is no folder '{source}'. {_EXPECTED}")
    if any((root / _CHECKOUT).glob("level*")):
        root /= _CHECKOUT
    files = sorted(path for path in root.rglob("*.py") if _is_problem(path))
    if not files:
        raise UsageError(f"no file in '{source}' defines a class Model and get_inputs. {_EXPECTED}")
    root = root.resolve()
    beginning = root.parent if _LEVEL.fullmatch(root.name) else root
    return [(path, operator_of(path.resolve().relative_to(beginning))) for path in files]


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


Answers = queue.SimpleQueue[tuple[Path, str, Read] | Exception | None]
"""Queue of (file, operator, answer). None: reading was stopped. An exception: reading failed as a whole."""


class ProblemReading:
    """Reads problems in several processes. Iterating starts them and yields answers as they come.

    A problem that ends its process is left out.
    """

    def __init__(self, problems: list[tuple[Path, str]], device_type: str, quiet: Quiet) -> None:
        self._problems = problems
        count = min(len(problems), _MOST_READERS.get(device_type, 1), os.cpu_count() or 1)
        self._readers = [_Reader(device_type, count, quiet) for _ in range(count)]
        self._answers: Answers = queue.SimpleQueue()

    def stop(self) -> None:
        """Read no further problem, and kill the processes that are reading. May be called from any thread."""
        for reader in self._readers:
            reader.stop()
        self._answers.put(None)

    def __iter__(self) -> Iterator[tuple[Path, str, Read]]:
        if not self._problems:
            return
        waiting: queue.SimpleQueue[tuple[Path, str]] = queue.SimpleQueue()
        for problem in self._problems:
            waiting.put(problem)
        with ThreadPoolExecutor(len(self._readers)) as threads:
            working = [threads.submit(reader.read, waiting, self._answers) for reader in self._readers]
            try:
                for _ in self._problems:
                    answer = self._answers.get()
                    if answer is None:
                        return
                    if isinstance(answer, Exception):
                        raise answer
                    yield answer
            finally:  # also after Ctrl-C: problems that are being read are not waited for
                for reader in self._readers:
                    reader.stop()
            for each in as_completed(working):
                each.result()


class _Reader:
    """Reads problems one after another in a process of its own, which is replaced when it ends. Used by one thread."""

    def __init__(self, device_type: str, readers: int, quiet: Quiet) -> None:
        self._device_type, self._readers, self._quiet = device_type, readers, quiet
        self._memory = ProblemMemory(device_type)
        self._process: Confined | None = None
        self._limit_bytes = 0
        """Host memory that the process may use."""
        self._is_stopped = False

    def read(self, waiting: queue.SimpleQueue[tuple[Path, str]], answers: Answers) -> None:
        """Read waiting problems until none is left, and put the answers into the queue."""
        try:
            self._read_all(waiting, answers)
        except Exception as error:  # noqa: BLE001 - raised again in the thread that waits for answers
            answers.put(error)
        finally:
            self._end_process()

    def _read_all(self, waiting: queue.SimpleQueue[tuple[Path, str]], answers: Answers) -> None:
        while not self._is_stopped:
            try:
                path, operator = waiting.get_nowait()
            except queue.Empty:
                break
            read = self._read_with_memory(path, operator)
            if read is None:
                break
            answers.put((path, operator, read))

    def _read_with_memory(self, path: Path, operator: str) -> Read | None:
        """Read a problem; if it turns out to need more memory, read it again with that much. None: stopped.

        Memory is reserved before ``quiet`` is entered. Inside ``quiet`` no judge measures, and a judge that waits may
        hold the memory.
        """
        granted_bytes, most_bytes = self._memory.small_bytes, self._memory.most_bytes
        while True:
            with self._memory.reserved(granted_bytes, lambda: self._is_stopped), self._quiet():
                if self._is_stopped:
                    return None
                read = self._answer(path, operator, granted_bytes)
            if not granted_bytes < read.wanted_bytes <= most_bytes:
                return read
            granted_bytes = read.wanted_bytes

    def stop(self) -> None:
        """Read no further problem, and kill the process that is reading. Called from another thread."""
        self._is_stopped = True
        process = self._process  # its own thread may end it meanwhile
        if process is not None:
            process.close_leash()

    def _answer(self, path: Path, operator: str, granted_bytes: int) -> Read:
        is_reserved = self._memory.takes_reservation(granted_bytes)
        most_bytes = self._memory.usable_bytes if is_reserved else self._memory.most_bytes
        given = self._device_type, granted_bytes, most_bytes, is_reserved
        try:
            order = ProblemOrder(operator, path.name, _text(path), *given)
            return self._process_for(granted_bytes).ask(order, Read, _READ_SECONDS)
        except (ConfinedEndedError, ConfinedTimeoutError, OSError, InfrastructureError) as error:
            self._end_process()
            return Read(exclusion=Exclusion(operator, _reason(error, self._device_type), path.name))

    def _process_for(self, granted_bytes: int) -> Confined:
        """A reader process whose limit of host memory includes the granted bytes, if the problem is run on the CPU."""
        least_bytes = _LEAST_BYTES[self._device_type]
        needed_bytes = least_bytes + (granted_bytes if self._device_type == "cpu" else 0)
        if self._limit_bytes < needed_bytes:
            self._end_process()
        if self._process is None:
            self._limit_bytes = max(int(_FIRST_HOST_SHARE * free_host_bytes()) // self._readers, needed_bytes)
            self._process = Confined(_READER, self._device_type, self._limit_bytes)
            if self._is_stopped:  # stopped while the process was made: `stop` could not end it
                self._process.close_leash()
        return self._process

    def _end_process(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.end()


def _reason(error: Exception, device_type: str) -> str:
    """Why a problem could not be read."""
    match error:
        case ConfinedTimeoutError():
            return f"running it once took longer than {_READ_SECONDS:g} s on {device_type}: too large for this machine"
        case ConfinedEndedError():
            return f"the process that ran it {error}"
    return str(error)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")
