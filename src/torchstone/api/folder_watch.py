"""Watches a folder of kernels: each look at it submits the new and changed kernels to a judge."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Protocol

from torchstone.api.evaluation import Evaluation
from torchstone.api.jobs_for_kernels import Purpose
from torchstone.api.judge import Judge
from torchstone.backends import BackendOptions, Problem, folder_name
from torchstone.backends.directory import DirectoryBackend
from torchstone.errors import MissingExtraError, TorchstoneError, UsageError
from torchstone.schema import Implementation
from torchstone.suites import names_operator

_POLL_MILLISECONDS = 2000
"""Longest time between two reads of the folder without a reported change."""


class View(Protocol):
    """Shows the state of each operator. Its methods are called from several threads."""

    def judging(self, operator: str) -> None:
        """The operator's kernel is new or has changed."""
        ...

    def judged(self, operator: str, evaluation: Evaluation) -> None: ...

    def failed(self, operator: str, message: str) -> None:
        """The kernel could not be judged, for this reason."""
        ...

    def removed(self, operator: str) -> None:
        """The operator's kernel was removed."""
        ...

    def noted(self, message: str) -> None:
        """Show a note about the whole folder; empty: remove the note."""
        ...


class FolderWatch:
    """Submits the new and changed kernels of a folder at each :meth:`look`."""

    def __init__(
        self, folder: Path, judge: Judge, view: View, purpose: Purpose, operators: tuple[str, ...] | None = None
    ) -> None:
        self._folder, self._judge, self._view = folder, judge, view
        self._purpose, self._operators = purpose, operators
        self._last_note = ""
        self._unused: tuple[Problem, ...] = ()
        self._seen: dict[str, str] = {}
        self._futures: dict[str, Future[Evaluation]] = {}

    def begin(self) -> None:
        """The first look. Raises UsageError if a given name has no cases, or if no kernel of the folder has any."""
        if self._operators is not None:
            self._judge.require_cases(*self._operators)
        self.look()
        if self._unused and not self._seen:
            raise UsageError(f"no kernel in {self._folder} can be judged: {self._last_note}.")

    def look(self) -> None:
        """Read the folder, submit new and changed kernels, and cancel those that were removed."""
        self._unused = ()
        try:
            found = self._kernels()
            note = "; ".join((*self._without_kernel(found), *map(_problem_line, self._unused)))
        except UsageError as error:
            if not self._folder.is_dir():
                raise
            found, note = {}, str(error)  # the folder may be half written: the next look may find more
        if note != self._last_note:
            self._last_note = note
            self._view.noted(note)
        for operator in self._seen.keys() - found.keys():
            self._cancel(operator)
            del self._seen[operator]
            self._view.removed(operator)
        for operator, implementation in found.items():
            if self._seen.get(operator) != implementation.key:
                self._seen[operator] = implementation.key
                self._submit(operator, implementation)

    def _kernels(self) -> dict[str, Implementation]:
        """The folder's kernels by overload. A folder named after an operator serves the overloads that have cases."""
        backend = DirectoryBackend(BackendOptions(self._folder, "cpu"))
        found: dict[str, Implementation] = {}
        without_cases: set[str] = set()
        for held in backend.held():
            wanted = [operator for operator in held.serves if self._is_wanted(operator)]
            judged = [each for each in wanted if len(held.serves) == 1 or self._judge.has_cases(each)]
            for operator in judged:
                offered = backend.implementation(operator)
                if offered is not None:
                    found[operator] = offered
            if wanted and not judged:
                without_cases.add(held.where)
        if without_cases:
            unused = self._judge.unused_kernels(backend)
            self._unused = tuple(each for each in unused if each.where in without_cases)
        return found

    def _without_kernel(self, found: Iterable[str]) -> Iterator[str]:
        """A note for each name that was given and has no kernel yet."""
        for name in self._operators or ():
            if not any(names_operator(name, operator) for operator in found):
                yield f"no folder of {self._folder} has a kernel for {name} yet; expected {folder_name(name)}/"

    def _is_wanted(self, operator: str) -> bool:
        return self._operators is None or any(names_operator(name, operator) for name in self._operators)

    def _submit(self, operator: str, implementation: Implementation) -> None:
        self._cancel(operator)
        self._view.judging(operator)
        try:
            future = self._judge.submit(implementation, operator, purpose=self._purpose)
        except TorchstoneError as error:
            self._view.failed(operator, str(error))
            return
        self._futures[operator] = future
        future.add_done_callback(partial(self._show_result, operator, implementation.key))

    def _cancel(self, operator: str) -> None:
        future = self._futures.pop(operator, None)
        if future is not None:
            future.cancel()

    def _show_result(self, operator: str, key: str, future: Future[Evaluation]) -> None:
        if future.cancelled() or self._seen.get(operator) != key:
            return
        error = future.exception()
        if error is None:
            self._view.judged(operator, future.result())
        else:
            self._view.failed(operator, str(error))


def _problem_line(problem: Problem) -> str:
    return f"{problem.where}: {problem.reason}"


def changes_of(folder: Path) -> Iterator[object]:
    """Yields after every change of the folder, and every two seconds without one. Raises MissingExtraError at once if
    watchfiles is not installed.
    """
    try:
        import watchfiles
    except ImportError as error:
        told = "torchstone watch needs watchfiles. Install the extra: pip install 'torchstone[watch]'."
        raise MissingExtraError(told) from error
    if not folder.is_dir():
        raise UsageError(f"kernels folder {folder} does not exist. Give the folder that holds the operators'.")
    # It yields without a change too: a change may come before the first wait, or the file system may report none.
    return watchfiles.watch(folder, raise_interrupt=True, rust_timeout=_POLL_MILLISECONDS, yield_on_timeout=True)
