"""One run of generation from request to summary: choose cases, ask and judge side by side, keep every attempt."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from torchstone.api import Judge
from torchstone.durable import write_atomically
from torchstone.errors import InfrastructureError
from torchstone.generation.asking import Asker, AskingLimits, NoAnswerError
from torchstone.generation.budget import Budget, added
from torchstone.generation.judging import REQUIRED_LAYERS, KernelJudge, open_judge
from torchstone.generation.operator_task import OperatorTask, Terms
from torchstone.generation.preparing import cases_by_operator, provider_for
from torchstone.generation.providers import Provider
from torchstone.generation.request import IDENTITY, OUTPUT_DIR, GenerationRequest, checked, configuration
from torchstone.generation.run_folder import ATTEMPTS, OperatorFolder, attempt_key, write_best
from torchstone.generation.strategies import Goal, strategy_named
from torchstone.generation.summary import METADATA, README, SUMMARY, metadata_text, readme_text, summary_text
from torchstone.generation.tasks import all_or_first_error, interruptible
from torchstone.generation.transcript import read_exchanges
from torchstone.prompting import Language, kernel_folder, language_named, limits_of, prompt_for, require_runnable
from torchstone.runs import folder as folders
from torchstone.runs.devices import device_type, resolve_device
from torchstone.runs.journal import Journal
from torchstone.runs.manifest import collect
from torchstone.schema import Case, Manifest, decode, encode
from torchstone.schema.generation import GENERATION, Attempt, GenerationRun, Usage

_FAILURES_IN_A_ROW = 10
"""Attempts without an answer, each after all its tries, with no answer in between: the provider is down."""
_SUMMARY_SECONDS = 2.0
"""How often the summary is written again while the run goes on."""


@dataclass(frozen=True)
class GenerationPlan:
    """What is going to be tried, and what an earlier part of the run did."""

    total: int
    """Attempts, if every operator needs all of them."""
    done: tuple[Attempt, ...]


class GenerationObserver(Protocol):
    """Who watches a run of generation."""

    def planned(self, plan: GenerationPlan, folder: Path) -> None:
        """The run is about to begin."""
        ...

    def recorded(self, record: Attempt | None) -> None:
        """An attempt is in the journal; None: one is not needed, because its operator is done."""
        ...

    def warned(self, message: str) -> None:
        """Something the user should know; the run goes on."""
        ...


@dataclass(frozen=True)
class GenerationResult:
    """What came of a run."""

    folder: Path
    run: GenerationRun
    attempts: tuple[Attempt, ...]
    usage: Usage
    """Of all its parts, with the cost if the price is known."""
    interrupted: bool = False
    """Ctrl-C or SIGTERM ended it early; what was done is kept."""
    spent: str = ""
    """Why nothing more was asked, if the budget ended; empty: it did not."""

    @property
    def right_operators(self) -> tuple[str, ...]:
        """Those that have a right kernel."""
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
) -> GenerationResult:
    """Carry out the request. The provider is found by name unless it is given; so is the judge."""
    run = _prepared(request, provider)
    with run.opened(observer):
        return asyncio.run(run.complete(lambda: KernelJudge(judge(run.request, run.device), required_layers)))


def _prepared(request: GenerationRequest, provider: Provider | None) -> _Run:
    """All that can be refused is refused here: before a folder is made, a judge started, or a token paid."""
    if provider is not None and request.provider is None:
        request = msgspec.structs.replace(request, provider="replay")
    request = checked(request)
    device = resolve_device(request.device)
    language = language_named(request.dsl)
    require_runnable(language, device_type(device))
    free = getattr(provider, "is_free", False) or request.provider == "replay"
    if request.budget_usd is not None and request.price is None and not free:
        Budget(usd=request.budget_usd)  # refuses
    asked = provider or provider_for(request)
    return _Run(request, device, language, asked, cases_by_operator(request, device))


class _Run:
    """A run under way: what its operators share."""

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
        self.spent = ""
        self._interrupted = False
        self._failures = 0
        self._written = 0.0

    # ---- the folder

    @contextlib.contextmanager
    def opened(self, observer: GenerationObserver) -> Iterator[None]:
        """The run's folder and journal, for as long as it lasts."""
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
            README: readme_text(self.run, self._shown_folder(), self._language.suffix),
        }
        for name, text in texts.items():
            write_atomically(self.folder / name, text.encode("utf-8", "replace"))
        self._write_summary()

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
        )

    def _operator_folder(self, operator: str) -> OperatorFolder:
        return OperatorFolder(self.folder, self.run.folders[operator], self._language.suffix)

    # ---- the work

    async def complete(self, open_kernel_judge: Callable[[], KernelJudge]) -> GenerationResult:
        """All operators at the same time: places limit the requests, the judge's queue orders the kernels."""
        asker = Asker(self._provider, self._asking_limits(), self._budget())
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
            with contextlib.suppress(OSError):  # a full disk was told already
                self._write_summary()
        return GenerationResult(
            self.folder, self.run, self._journal.records, asker.budget.spent, self._interrupted, self.spent
        )

    async def _all_operators(self, asker: Asker, judge: KernelJudge) -> None:
        left = [operator for operator in self._cases if not self._is_done(operator)]
        if left:
            judge.begin(min(self._cases[left[0]], key=lambda case: len(encode(case))))
        terms = self._terms()
        await all_or_first_error([self._operator(operator, terms, asker, judge) for operator in self._cases])

    async def _operator(self, operator: str, terms: Terms, asker: Asker, judge: KernelJudge) -> None:
        folder = self._operator_folder(operator)
        own = [attempt for attempt in self._journal.records if attempt.operator == operator]
        prompt = "" if self._is_done(operator) else await asyncio.to_thread(self._prompt, operator, folder)
        task = OperatorTask(operator, self._cases[operator], prompt, folder, own)
        await task.complete(self, terms, asker, judge)
        await asyncio.to_thread(write_best, folder, [a for a in self._journal.records if a.operator == operator])
        made = sum(attempt.operator == operator for attempt in self._journal.records)
        if not self.is_stopping:
            for _ in range(self.request.max_attempts - made):
                self._observer.recorded(None)

    def _is_done(self, operator: str) -> bool:
        """Whether an earlier part of the run has left nothing to do."""
        own = [attempt for attempt in self._journal.records if attempt.operator == operator]
        terms = self._terms()
        waiting = {each.number for each in read_exchanges(self._operator_folder(operator).transcript)}
        unjudged = waiting - {attempt.number for attempt in own}
        return not unjudged and not terms.strategy.next_asks(own, (), terms.goal)

    def _terms(self) -> Terms:
        return Terms(
            self.run.model,
            self._language,
            strategy_named(self.request.strategy),
            self.request.strategy,
            Goal(self.request.max_attempts, self.request.target_speedup),
            self.request.feedback_tokens,
        )

    def _prompt(self, operator: str, folder: OperatorFolder) -> str:
        request = self.request
        device = limits_of(self.device, threads=request.threads, deadlines=request.deadlines, limits=request.limits)
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

    def _asking_limits(self) -> AskingLimits:
        return AskingLimits(self.request.concurrency, self.request.retries, self.request.request_timeout_seconds)

    def _budget(self) -> Budget:
        """What earlier parts of the run used counts: every reply that was received is in a transcript."""
        spent = Usage()
        for operator in self._cases:
            for exchange in read_exchanges(self._operator_folder(operator).transcript):
                spent = added(spent, exchange.usage)
        is_free = getattr(self._provider, "is_free", False)
        return Budget(
            usd=None if is_free else self.request.budget_usd,
            tokens=self.request.budget_tokens,
            price=self.request.price,
            max_output_tokens=self.request.max_output_tokens,
            spent=spent,
        )

    # ---- what operators tell

    @property
    def is_stopping(self) -> bool:
        return bool(self.spent)

    def keep(self, attempt: Attempt) -> None:
        self._journal.append(attempt)
        self._observer.recorded(attempt)
        if time.monotonic() - self._written > _SUMMARY_SECONDS:
            self._write_summary()

    def stop_asking(self, reason: str) -> None:
        if not self.spent:
            self.spent = reason
            self._observer.warned(f"the budget ends: {reason}. What was asked is still judged.")

    def answered(self) -> None:
        self._failures = 0

    def no_answer(self, error: NoAnswerError) -> None:
        self._failures += 1
        if error.failure.ends_the_run:
            raise InfrastructureError(f"the provider refuses every request: {error}. Check key, model and address.")
        if self._failures >= _FAILURES_IN_A_ROW:
            raise InfrastructureError(
                f"{self._failures} attempts in a row had no answer; the last: {error}. "
                f"Go on later with: {resuming_command(self.folder)}"
            )

    def _interrupt(self) -> None:
        self._interrupted = True

    def _write_summary(self) -> None:
        self._written = time.monotonic()
        note = f"Stopped by the budget: {self.spent}" if self.spent else ""
        text = summary_text(self.run, self.folder.name, self._journal.records, note)
        write_atomically(self.folder / SUMMARY, text.encode("utf-8", "replace"))


def resuming_command(folder: Path) -> str:
    """The command that goes on with this run; its options are remembered."""
    where = ["--output-dir", str(folder.parent)] if folder.parent != OUTPUT_DIR else []
    return shlex.join(["torchstone", "generate", "--resume", "--run-id", folder.name, *where])
