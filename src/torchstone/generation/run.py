"""Executes a generation run: asks for kernels and judges them concurrently, keeps every attempt, writes summaries."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import shlex
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from torchstone.api import Judge
from torchstone.api.run_now import run_now
from torchstone.atomic_files import write_atomically
from torchstone.errors import InfrastructureError
from torchstone.generation.ask_with_retries import Asker, AskingLimits, NoAnswerError
from torchstone.generation.budget import Budget
from torchstone.generation.concurrent_tasks import all_or_first_error, interruptible
from torchstone.generation.kernel_judge import REQUIRED_LAYERS, KernelJudge, open_judge
from torchstone.generation.operator_task import OperatorTask, Terms
from torchstone.generation.preflight_checks import answerable, cases_by_operator, runnable_provider
from torchstone.generation.profiling_attempts import AttemptProfiler
from torchstone.generation.providers import Provider
from torchstone.generation.request import IDENTITY, OUTPUT_DIR, GenerationRequest, checked, configuration
from torchstone.generation.run_folder import ATTEMPTS, OperatorFolder, attempt_key, read_usage, write_best, write_usage
from torchstone.generation.strategies import Goal, strategy_named
from torchstone.generation.summary import METADATA, README, SUMMARY, metadata_text, readme_text, summary_text
from torchstone.generation.transcript import read_exchanges
from torchstone.prompting import (
    Language,
    kernel_folder,
    language_named,
    language_of_solutions,
    limits_of,
    problem_prompt,
    prompt_for,
)
from torchstone.runs import folder as folders
from torchstone.runs.devices import resolve_device
from torchstone.runs.journal import Journal
from torchstone.runs.manifest import collect
from torchstone.schema import Case, Manifest, decode, encode, is_model
from torchstone.schema.generation import GENERATION, Attempt, GenerationRun, Usage

_MOST_FAILURES_IN_A_ROW = 10
"""After so many attempts without a reply, each with all its tries, the run ends: the provider is taken to be down."""
_SECONDS_BETWEEN_SUMMARIES = 2.0
"""Shortest time between two writes of the summary during a run."""


@dataclass(frozen=True)
class GenerationPlan:
    """How many attempts a run may make, and those that an earlier part of it made."""

    total: int
    """Attempts if every operator needs all of them."""
    done: tuple[Attempt, ...]


class GenerationObserver(Protocol):
    """Receives the progress of a generation run."""

    def planned(self, plan: GenerationPlan, folder: Path) -> None:
        """The run is about to begin."""
        ...

    def recorded(self, record: Attempt | None) -> None:
        """An attempt is in the journal. None: an attempt is not needed, because its operator is done."""
        ...

    def warned(self, message: str) -> None:
        """The user should know this; the run continues."""
        ...


@dataclass(frozen=True)
class GenerationResult:
    """The result of a generation run."""

    folder: Path
    run: GenerationRun
    attempts: tuple[Attempt, ...]
    usage: Usage
    """Usage of all parts of the run, with the cost if the price is known."""
    interrupted: bool = False
    """Whether Ctrl-C or SIGTERM ended the run early. Finished attempts are kept."""
    spent: str = ""
    """Why no further request was made, if the budget was used up; empty: it was not."""

    @property
    def right_operators(self) -> tuple[str, ...]:
        """The operators that have a right kernel."""
        return tuple(dict.fromkeys(attempt.operator for attempt in self.attempts if attempt.right))

    @property
    def all_right(self) -> bool:
        return len(self.right_operators) == len(self.run.folders)


def generate(
    request: GenerationRequest,
    observer: GenerationObserver,
    *,
    provider: Provider | None = None,
    judge: Callable[[GenerationRequest, str], Judge] = open_judge,
    required_layers: frozenset[str] = REQUIRED_LAYERS,
    begun: Callable[[Path], None] | None = None,
) -> GenerationResult:
    """Carry out the request, also in a notebook. ``provider`` and ``judge`` replace those that the request names.

    ``begun`` is called with the run's folder before the first request.
    """
    run = _checked_run(request, provider)
    with run.opened(observer):
        if begun is not None:
            begun(run.folder)
        result: GenerationResult = run_now(
            run.complete(lambda: KernelJudge(judge(run.request, run.device), required_layers))
        )
        return result


def _checked_run(request: GenerationRequest, provider: Provider | None) -> _Run:
    """The run of a request. Raises every error that can be found before a folder, a judge or a paid request."""
    if provider is not None and request.provider is None:
        request = msgspec.structs.replace(request, provider="replay")
    request = checked(request)
    device = resolve_device(request.device)
    language = language_named(request.dsl)
    free = getattr(provider, "is_free", False) or request.provider == "replay"
    if request.budget_usd is not None and request.price is None and not free:
        Budget(usd=request.budget_usd)  # refuses
    asked = runnable_provider(request, language, device, provider)
    return _Run(request, device, language, asked, answerable(asked, cases_by_operator(request, device), request))


class _Run:
    """A generation run in progress: its folder, its journal, and the state that operator tasks share."""

    def __init__(
        self,
        request: GenerationRequest,
        device: str,
        language: Language,
        provider: Provider,
        cases: dict[str, tuple[Case, ...]],
    ) -> None:
        self.request, self.device, self._language = request, device, language
        self._provider, self._cases = provider, cases
        self._profiler = AttemptProfiler(request, device) if request.feedback_profile else None
        self.spent = ""
        self._interrupted = False
        self._failures = 0
        self._last_failure: NoAnswerError | None = None
        """None: no request has failed since the last reply."""
        self._has_reply = False
        self._summary_written = 0.0

    # ---- the folder

    @contextlib.contextmanager
    def opened(self, observer: GenerationObserver) -> Iterator[None]:
        """Open the run's folder and journal, and close the journal at the end."""
        manifest = collect(configuration(self.request, self.device))
        self.folder = folders.open_folder(self.request, manifest, IDENTITY)
        with folders.open_journal(self.folder, ATTEMPTS) as self._journal:
            notes = (self._journal.note, folders.note_circumstances(self.folder, manifest))
            with folders.writing_to(self.folder):
                self._begin(self._journal, folders.read_manifest(self.folder))
            for note in filter(None, notes):
                observer.warned(note)
            self._observer = observer
            plan = GenerationPlan(len(self._cases) * self.request.max_attempts, self._journal.records)
            observer.planned(plan, self.folder)
            yield

    def _begin(self, journal: Journal[Attempt], manifest: Manifest) -> None:
        numbers = range(1, self.request.max_attempts + 1)
        journal.compact([attempt_key(operator, number) for operator in self._cases for number in numbers])
        self.run = self._description()
        write_atomically(self.folder / GENERATION, msgspec.json.format(encode(self.run)) + b"\n")
        texts = {
            METADATA: metadata_text(self.run, manifest, self.request.command),
            README: self._readme(self._shown_folder()),
        }
        for name, text in texts.items():
            write_atomically(self.folder / name, text.encode("utf-8", "replace"))
        self._write_summary()

    def _readme(self, folder: Path) -> str:
        return readme_text(self.run, folder, self._language.suffix, resuming_command(folder), self.request.operators)

    def _shown_folder(self) -> Path:
        return self.request.output_dir / self.folder.name

    def _description(self) -> GenerationRun:
        operators = frozenset(self._cases)
        path = self.folder / GENERATION
        earlier = decode(path.read_bytes(), GenerationRun) if path.exists() else None
        return GenerationRun(
            started_unix_ns=time.time_ns() if earlier is None else earlier.started_unix_ns,
            suite=self.request.suite,
            provider=str(self.request.provider),
            model=self.request.model or "recorded",
            dsl=self.request.dsl,
            strategy=self.request.strategy,
            max_attempts=self.request.max_attempts,
            folders={operator: kernel_folder(operator, operators) for operator in self._cases},
            device=self.device,
            effort=self.request.effort,
            mode=self.request.mode,
            source=self.request.source,
        )

    def _operator_folder(self, operator: str) -> OperatorFolder:
        return OperatorFolder(self.folder, self.run.folders[operator], self._language_of(operator).suffix)

    def _language_of(self, operator: str) -> Language:
        return language_of_solutions(self._language) if is_model(operator) else self._language

    # ---- the work

    async def complete(self, open_kernel_judge: Callable[[], KernelJudge]) -> GenerationResult:
        """Run all operators at the same time. A semaphore limits the requests, the judge's queue orders the kernels."""
        asker = Asker(self._provider, self._request_limits(), self._budget())
        judge = open_kernel_judge()
        try:
            with interruptible(asyncio.current_task(), self._interrupt):
                await self._all_operators(asker, judge)
        except asyncio.CancelledError:
            if not self._interrupted:
                raise
        except OSError as error:
            raise InfrastructureError(
                f"cannot write to {self.folder}: {error.strerror or error}. Mend that, then go on with: "
                f"{resuming_command(self.folder)}"
            ) from error
        finally:
            await judge.close()
            await asker.close()
            with contextlib.suppress(OSError):  # a full disk has been reported already
                self._write_summary()
        return GenerationResult(
            self.folder, self.run, self._journal.records, asker.budget.spent, self._interrupted, self.spent
        )

    async def _all_operators(self, asker: Asker, judge: KernelJudge) -> None:
        left = [operator for operator in self._cases if not self._is_done(operator)]
        if left:
            judge.begin(min(self._cases[left[0]], key=lambda case: len(encode(case))))
        await all_or_first_error([self._operator(operator, asker, judge) for operator in self._cases])
        if self._last_failure is not None and not self._has_reply and self._last_failure.failure.reason != "refused":
            raise self._no_reply_error(self._last_failure)

    async def _operator(self, operator: str, asker: Asker, judge: KernelJudge) -> None:
        folder = self._operator_folder(operator)
        own = [attempt for attempt in self._journal.records if attempt.operator == operator]
        prompt = "" if self._is_done(operator) else await asyncio.to_thread(self._prompt, operator, folder)
        task = OperatorTask(operator, self._cases[operator], prompt, folder, own)
        await task.complete(self, self._terms(operator), asker, judge)
        await asyncio.to_thread(write_best, folder, [a for a in self._journal.records if a.operator == operator])
        made = sum(attempt.operator == operator for attempt in self._journal.records)
        if not self.is_stopping:
            for _ in range(self.request.max_attempts - made):
                self._observer.recorded(None)

    def _is_done(self, operator: str) -> bool:
        """Whether an earlier part of the run has finished the operator: no attempt to judge, none to make."""
        own = [attempt for attempt in self._journal.records if attempt.operator == operator]
        terms = self._terms(operator)
        waiting = {each.number for each in read_exchanges(self._operator_folder(operator).transcript)}
        unjudged = waiting - {attempt.number for attempt in own}
        return not unjudged and not terms.strategy.next_asks(own, (), terms.goal)

    def _terms(self, operator: str) -> Terms:
        return Terms(
            self.run.model,
            self._language_of(operator),
            strategy_named(self.request.strategy),
            self.request.strategy,
            Goal(self.request.max_attempts, self.request.target_speedup),
            self.request.feedback_tokens,
            self._profiler,
        )

    def _prompt(self, operator: str, folder: OperatorFolder) -> str:
        request = self.request
        device = limits_of(self.device, threads=request.threads, deadlines=request.deadlines, limits=request.limits)
        if is_model(operator):
            case = self._cases[operator][0]
            return problem_prompt(case, request.dsl, device, require_authored=request.require_authored)
        return prompt_for(
            operator,
            self._cases[operator],
            request.dsl,
            device=device,
            folder=folder.name,
            shapes=request.shapes,
            non_finite=request.non_finite,
            require_authored=request.require_authored,
        )

    def _request_limits(self) -> AskingLimits:
        return AskingLimits(self.request.concurrency, self.request.retries, self.request.request_timeout_seconds)

    def _budget(self) -> Budget:
        """The budget of the run. The usage of earlier parts counts, that of failed requests too."""
        is_free = getattr(self._provider, "is_free", False)
        return Budget(
            usd=None if is_free else self.request.budget_usd,
            tokens=self.request.budget_tokens,
            price=self.request.price,
            max_output_tokens=self.request.max_output_tokens,
            spent=read_usage(self.folder),
            keep=functools.partial(write_usage, self.folder),
        )

    # ---- what operator tasks call (`operator_task.Run`)

    @property
    def is_stopping(self) -> bool:
        return bool(self.spent)

    def keep(self, attempt: Attempt) -> None:
        self._journal.append(attempt)
        self._observer.recorded(attempt)
        if time.monotonic() - self._summary_written > _SECONDS_BETWEEN_SUMMARIES:
            self._write_summary()

    def stop_asking(self, reason: str) -> None:
        if not self.spent:
            self.spent = reason
            self._observer.warned(f"the budget ends: {reason}. What was asked is still judged.")

    def answered(self) -> None:
        self._failures, self._last_failure, self._has_reply = 0, None, True

    def no_answer(self, error: NoAnswerError) -> None:
        self._failures, self._last_failure = self._failures + 1, error
        if error.failure.reason == "connection" and not self._has_reply:
            raise self._no_reply_error(error)
        if error.failure.ends_the_run:
            raise InfrastructureError(f"the provider refuses every request: {error}. Check key, model and address.")
        if self._failures >= _MOST_FAILURES_IN_A_ROW:
            raise InfrastructureError(
                f"{self._failures} attempts in a row had no answer; the last: {error}. "
                f"Go on later with: {resuming_command(self.folder)}"
            )

    def _no_reply_error(self, error: NoAnswerError) -> InfrastructureError:
        """The error for a run in which no request got a reply: it is about the server, not the model."""
        reached = (
            "the model's server cannot be reached" if error.failure.reason == "connection" else "there is no reply"
        )
        tries = f"{error.requests} {'try' if error.requests == 1 else 'tries'} in {error.seconds:.0f} s"
        return InfrastructureError(
            f"{reached}: {error} ({tries}). Start the server or correct its address (--base-url), then go on with: "
            f"{resuming_command(self.folder)}"
        )

    def _interrupt(self) -> None:
        self._interrupted = True

    def _write_summary(self) -> None:
        self._summary_written = time.monotonic()
        note = f"Stopped by the budget: {self.spent}" if self.spent else ""
        text = summary_text(self.run, self.folder.name, self._journal.records, note)
        write_atomically(self.folder / SUMMARY, text.encode("utf-8", "replace"))


def resuming_command(folder: Path) -> str:
    """The command that resumes this run. The run's options are stored in its folder."""
    where = ["--output-dir", str(folder.parent)] if folder.parent != OUTPUT_DIR else []
    return shlex.join(["torchstone", "generate", "--resume", "--run-id", folder.name, *where])
