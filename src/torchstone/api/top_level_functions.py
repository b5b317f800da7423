"""Functions such as ``torchstone.check``. They share one judge, whose processes stay started between calls."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchstone.api.evaluation import Evaluation
from torchstone.api.judge import Judge, close_all
from torchstone.api.kernel_argument import Kernel
from torchstone.api.operator_argument import OperatorName
from torchstone.api.settings import NAMES, OF_PROCESSES, Settings, changed, names_of
from torchstone.backends.accompanying_files import Files

if TYPE_CHECKING:
    from torchstone.suites.program_capture import Capture


class _WarmJudge:
    """Keeps the judge of the last call started. A call whose judge needs other process settings replaces it.

    Calls in progress keep their judge until they end.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._judge: Judge | None = None
        self._process_settings: tuple[Any, ...] = ()
        self._calls_in_progress: dict[Judge, int] = {}

    @contextmanager
    def of(self, given: Mapping[str, Any]) -> Iterator[tuple[Judge, dict[str, Any]]]:
        """Yields the judge for these settings, and the settings that the call itself passes to it."""
        settings = changed(Settings(), given)
        process_settings = tuple(getattr(settings, name) for name in OF_PROCESSES)
        with self._lock:
            retired = None
            if self._judge is None or self._process_settings != process_settings:
                retired = self._judge
                self._judge, self._process_settings = (
                    Judge(**dict(zip(OF_PROCESSES, process_settings, strict=True))),
                    process_settings,
                )
            judge = self._judge
            self._calls_in_progress[judge] = self._calls_in_progress.get(judge, 0) + 1
            unused = retired is not None and retired not in self._calls_in_progress
        if unused and retired is not None:
            retired.close()
        try:
            yield judge, {name: getattr(settings, name) for name in NAMES if name not in OF_PROCESSES}
        finally:
            self._release(judge)

    def _release(self, judge: Judge) -> None:
        with self._lock:
            self._calls_in_progress[judge] -= 1
            is_last_call = self._calls_in_progress[judge] == 0
            if is_last_call:
                del self._calls_in_progress[judge]
            is_retired = is_last_call and judge is not self._judge
        if is_retired:
            judge.close()

    def close(self) -> None:
        with self._lock:
            judge, self._judge = self._judge, None
        if judge is not None:
            judge.close()

    def forget(self) -> None:
        """Drop the judge without closing it, in a forked child: its processes belong to the parent."""
        self.__init__()  # type: ignore[misc]


_warm = _WarmJudge()
os.register_at_fork(after_in_child=_warm.forget)
atexit.register(close_all)


def close() -> None:
    """End the judge that the last call left warm. The next call starts another."""
    _warm.close()


def check(
    kernel: Kernel, operator: OperatorName, *, entry: str | None = None, files: Files = (), **settings: Any
) -> Evaluation:
    """Is the kernel right? Every case of the operator is judged, nothing is timed."""
    with _warm.of(settings) as (judge, given):
        return judge.check(kernel, operator, entry=entry, files=files, **given)


def measure(
    kernel: Kernel, operator: OperatorName, *, entry: str | None = None, files: Files = (), **settings: Any
) -> Evaluation:
    """How fast is it? Only cases that are meant for timing; a wrong kernel has no speed, its verdict says why."""
    with _warm.of(settings) as (judge, given):
        return judge.measure(kernel, operator, entry=entry, files=files, **given)


def evaluate(
    kernel: Kernel, operator: OperatorName, *, entry: str | None = None, files: Files = (), **settings: Any
) -> Evaluation:
    """Both: every case is checked, and those meant for timing are timed."""
    with _warm.of(settings) as (judge, given):
        return judge.evaluate(kernel, operator, entry=entry, files=files, **given)


def evaluate_many(
    kernels: Mapping[OperatorName, Kernel], *, files: Files = (), **settings: Any
) -> dict[str, Evaluation]:
    """Evaluate a kernel for each operator, on all requested devices at the same time. ``files`` are sent with each."""
    with _warm.of(settings) as (judge, given):
        return judge.evaluate_many(kernels, files=files, **given)


@contextmanager
def capture(path: str | Path, *, operators: Iterable[str] | None = None) -> Iterator[Capture]:
    """Record the operators that the block calls, forward and backward, as a suite: ``--suite captured --source PATH``.

    The file is written when the block ends, also by an exception. ``operators`` has the names of the command line.
    """
    from torchstone.suites.program_capture import capturing

    names = names_of(operators)
    with capturing(Path(path), None if names is None else tuple(names)) as recorded:
        yield recorded
