"""Makes cases of the operator calls in OpInfo's samples, which run in other processes because they may crash."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from queue import Empty, SimpleQueue
from typing import IO, NamedTuple

import msgspec

from torchstone.atomic_files import kernel_cache_environment
from torchstone.errors import InfrastructureError, UsageError
from torchstone.schema import Case, Given, Tensor, content_key, tensors_of
from torchstone.suites.base import CaseQuery, selects
from torchstone.suites.case_cache import Entry, Exclusion, Index, Part, PlacedCase, Prepared, Progress, merged

_SECONDS_PER_REPLY = 180.0
"""Longest wait for a message of a process; then it is replaced."""
_SECONDS_TO_START = 180.0
_MOST_PROCESSES = 16
_MAX_SHOWN_NAMES = 5
"""Most operators that the progress text names. The others are only counted."""
CRASHES = "torch crashes or hangs on its samples"


class Sample(msgspec.Struct, frozen=True, tag="sample"):
    """Run the samples of one entry of the database, and make cases of what they call."""

    index: int
    names: tuple[str, ...] | None = None
    """Make cases of these operators only, named as in `CaseQuery.operators`; None is all."""
    cautious: tuple[str, ...] = ()
    """Operators whose integers keep their recorded values, because a process died on other values."""
    without: tuple[str, ...] = ()
    """Operators to leave out, because a process died on the recorded values too."""

    def after_death(self, operator: str) -> Sample | None:
        """The order to try next after a process died while making cases of that operator. None: there is none."""
        if not operator:
            return None
        if operator in self.cautious:
            return msgspec.structs.replace(self, without=(*self.without, operator))
        return msgspec.structs.replace(self, cautious=(*self.cautious, operator))


class Enlarge(msgspec.Struct, frozen=True, tag="enlarge"):
    """Make a large variant of a case."""

    case: Case

    def after_death(self, operator: str) -> None:
        """Return None: there is no other way to make a variant."""


SamplingOrder = Sample | Enlarge


class BegunReply(msgspec.Struct, frozen=True, tag="begun"):
    """Sent before cases of one operator are made. It tells on which operator a process died."""

    operator: str


class Found(msgspec.Struct, frozen=True, tag="found"):
    """The answer to an order."""

    cases: tuple[Case, ...] = ()
    exclusions: tuple[Exclusion, ...] = ()
    numbers: tuple[int, ...] = ()
    """For each case of a sample: the number of its call among all calls of the entry."""
    operators: tuple[str, ...] = ()
    """Every overload that the entry calls, requested or not."""


Reply = BegunReply | Found
_REPLY: msgspec.json.Decoder[Reply] = msgspec.json.Decoder(Reply)


class Names(msgspec.Struct, frozen=True):
    """The first message of a process."""

    entries: tuple[str, ...] = ()
    missing: str = ""
    """The package that OpInfo needs and that is not installed."""


class _Process:
    """One process that runs samples."""

    def __init__(self, device: str, dtype: str) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", **kernel_cache_environment()}
        command = [sys.executable, "-m", "torchstone.case_checks.opinfo_process", device, dtype]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
        )
        self._lines: SimpleQueue[bytes] = SimpleQueue()
        threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True).start()
        self._names: Names | None = None

    @property
    def names(self) -> Names:
        """The first message. The first access waits for it, so that processes start in parallel."""
        if self._names is None:
            self._names = msgspec.json.decode(self._line(_SECONDS_TO_START) or b"{}", type=Names)
        return self._names

    def _read(self, stream: IO[bytes]) -> None:
        for line in stream:
            self._lines.put(line)
        self._lines.put(b"")

    def _line(self, seconds: float) -> bytes | None:
        try:
            return self._lines.get(timeout=seconds) or None
        except Empty:
            return None

    def ask(self, order: SamplingOrder) -> Reply:
        """The answer. If it is `BegunReply`, the process died or was too slow at that operator and must be replaced."""
        begun = BegunReply("")
        if not self.names.entries:
            return begun
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(msgspec.json.encode(order) + b"\n")
            self._process.stdin.flush()
        except OSError:
            return begun
        while (line := self._line(_SECONDS_PER_REPLY)) is not None:
            reply = _REPLY.decode(line)
            if isinstance(reply, Found):
                return reply
            begun = reply
        return begun

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


def prepare(
    device: str,
    dtype: str,
    progress: Progress,
    names: tuple[str, ...] | None = None,
    index: Index | None = None,
    entries: Collection[str] | None = None,
) -> Prepared:
    """Make the cases of the named operators, and a large variant of a case for each operator. None: all operators.

    Without an index, the samples of every entry are run, and the index is made of the operators that they call. With
    an index, only entries that call a named operator are run. ``entries``: names of entries to use; None is all.
    """
    query = CaseQuery(names)
    callers = {entry.number for entry in index.entries if _calls_selected(entry, query)} if index is not None else None
    with contextlib.closing(_ProcessPool(device, dtype, _MOST_PROCESSES if callers is None else len(callers))) as crew:
        chosen = [
            (number, name)
            for number, name in enumerate(crew.names)
            if (callers is None or number in callers) and (entries is None or name in entries)
        ]
        what = _progress_text("OpInfo entries" if index is not None else "all OpInfo entries", names)
        answers = crew.carry_out([Sample(number, names) for number, _ in chosen], progress, what)
        ran = [_SampledEntry(number, name, found) for (number, name), found in zip(chosen, answers, strict=True)]
        if index is None:
            index = Index(tuple(map(_entry, ran)))
        else:
            ran = [_with_crashed_operators(entry, query, index) for entry in ran]
        parts = _parts((operator for operator in index.operators if selects(query, operator)), ran)
        bases = [base for part in parts.values() for base in _case_to_enlarge(part)]
        grown = crew.carry_out(
            [Enlarge(base.case) for base in bases], progress, _progress_text("large variants", names)
        )
    for base, found in zip(bases, grown, strict=True):
        parts[base.case.operator] = _with_large(parts[base.case.operator], found)
    return Prepared(index, parts)


class _SampledEntry(NamedTuple):
    """An entry whose samples were run."""

    number: int
    name: str
    found: Found


def _calls_selected(entry: Entry, query: CaseQuery) -> bool:
    return any(selects(query, operator) for operator in entry.operators)


def _progress_text(what: str, names: tuple[str, ...] | None) -> str:
    """Text for the progress: what is made, and for which operators."""
    if names is None:
        return what
    more = f" and {len(names) - _MAX_SHOWN_NAMES} more" if len(names) > _MAX_SHOWN_NAMES else ""
    return f"{what} for {', '.join(names[:_MAX_SHOWN_NAMES])}{more}"


def _entry(ran: _SampledEntry) -> Entry:
    failed = tuple(item for item in ran.found.exclusions if not item.operator)
    return Entry(ran.name, ran.number, ran.found.operators, failed)


def _with_crashed_operators(ran: _SampledEntry, query: CaseQuery, index: Index) -> _SampledEntry:
    """If the whole entry crashed, exclude each operator that it calls according to the index, which was made before."""
    if not any(item.reason == CRASHES and not item.operator for item in ran.found.exclusions):
        return ran
    called = next(entry.operators for entry in index.entries if entry.number == ran.number)
    lost = tuple(Exclusion(operator, CRASHES, ran.name) for operator in called if selects(query, operator))
    return ran._replace(found=Found(exclusions=lost))


def _parts(operators: Iterable[str], ran: Iterable[_SampledEntry]) -> dict[str, Part]:
    """The cases of each operator, without repetitions: the first of equal calls."""
    cases: dict[str, dict[str, PlacedCase]] = {operator: {} for operator in operators}
    exclusions: dict[str, list[Exclusion]] = {operator: [] for operator in cases}
    for entry in ran:
        for number, case in zip(entry.found.numbers, entry.found.cases, strict=True):
            cases[case.operator].setdefault(case.key, PlacedCase(case, (0, entry.number, number)))
        for item in entry.found.exclusions:
            if item.operator:
                exclusions[item.operator].append(item)
    return {name: Part(name, tuple(cases[name].values()), merged(exclusions[name])) for name in cases}


def _with_large(part: Part, found: Found) -> Part:
    """The part with its large variant. Large variants sort after all other cases, by the first case that may grow."""
    _, entry, number = next(item.place for item in part.cases if _can_be_enlarged(item.case))
    large = tuple(PlacedCase(case, (1, entry, number)) for case in found.cases)
    return msgspec.structs.replace(part, cases=(*part.cases, *large))


class _ProcessPool:
    """A pool of processes that run samples in parallel. A process that dies is replaced."""

    def __init__(self, device: str, dtype: str, orders: int) -> None:
        """``orders``: the largest number of orders to come, and so the most processes that are started."""
        self._device_and_dtype = device, dtype
        count = min(max(orders, 1), _MOST_PROCESSES, len(os.sched_getaffinity(0)))
        self._processes = [_Process(device, dtype) for _ in range(count)]
        found = self._processes[0].names
        self.names = found.entries
        if found.missing or not found.entries:
            self.close()
        if found.missing:
            raise UsageError(f"suite 'opinfo' needs the package '{found.missing}': pip install 'torchstone[opinfo]'.")
        if not found.entries:
            raise InfrastructureError(f"torch's OpInfo database cannot be used for {device} here.")

    def close(self) -> None:
        for process in self._processes:
            process.close()

    def carry_out(self, orders: Sequence[SamplingOrder], progress: Progress, what: str) -> list[Found]:
        """Carry out all orders; the answers are in the sequence of the orders."""
        answers: dict[int, Found] = {}
        waiting = deque(enumerate(orders))
        lock = threading.Lock()

        def work(place: int) -> None:
            while True:
                with lock:
                    if not waiting:
                        return
                    number, order = waiting.popleft()
                answer = self._answer(place, order)
                with lock:
                    answers[number] = answer
                    progress(len(answers), len(orders), what)

        threads = [threading.Thread(target=work, args=(place,), daemon=True) for place in range(len(self._processes))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [answers[number] for number in range(len(orders))]

    def _answer(self, place: int, order: SamplingOrder) -> Found:
        left: SamplingOrder | None = order
        while left is not None:
            reply = self._processes[place].ask(left)
            if isinstance(reply, Found):
                return reply
            self._processes[place].close()
            self._processes[place] = _Process(*self._device_and_dtype)
            left = left.after_death(reply.operator)
        source = self.names[order.index] if isinstance(order, Sample) else order.case.operator
        return Found(exclusions=(Exclusion("", CRASHES, source),))


def _case_to_enlarge(part: Part) -> list[PlacedCase]:
    """The case to make a large variant of, if there is one: preferably informative, contiguous and large."""
    return sorted((item for item in part.cases if _can_be_enlarged(item.case)), key=lambda item: _rank(item.case))[-1:]


def _can_be_enlarged(case: Case) -> bool:
    return not any(isinstance(tensor.fill, Given) for tensor in tensors_of(case))


def _rank(case: Case) -> tuple[bool, bool, int, str]:
    tensors = tensors_of(case)
    plain = all(tensor.strides is None and not tensor.offset for tensor in tensors)
    return not case.indistinct, plain, sum(_elements(tensor) for tensor in tensors), content_key(case.key)


def _elements(tensor: Tensor) -> int:
    product = 1
    for size in tensor.shape:
        product *= size
    return product
