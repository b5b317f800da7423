"""Makes the attempts at one operator: asks the model, extracts its code, has it judged, writes the outcome.

Files are written in this order: the reply, the kernel, its records, the line of the journal. So a run that is killed
can be resumed: a reply whose line is missing is judged again, without asking the model again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Protocol

import msgspec

from torchstone.generation.ask_with_retries import Asker, NoAnswerError
from torchstone.generation.attempt_messages import Shown, evolving, refining
from torchstone.generation.budget import BudgetSpentError
from torchstone.generation.kernel_judge import KernelJudge, feedback_from
from torchstone.generation.profiling_attempts import AttemptProfiler
from torchstone.generation.providers import ModelRequest
from torchstone.generation.run_folder import OperatorFolder, write_best
from torchstone.generation.strategies import Ask, Goal, Strategy
from torchstone.generation.transcript import PAGE, append_exchange, read_exchanges, write_page
from torchstone.prompting import Language, code_in, entry_for
from torchstone.reports.safe_text import one_line
from torchstone.schema import Case, Profile
from torchstone.schema.generation import (
    Attempt,
    Exchange,
    Judged,
    Message,
    NoCode,
    NotJudged,
    Outcome,
    ProviderFailed,
)

_LENGTH_STOP_REASONS = frozenset({"max_tokens", "length", "model_context_window_exceeded"})
"""Stop reasons of replies that reached a limit of their length."""
_LONGEST_REASON_CHARACTERS = 200
"""Characters of the reason for a missing reply in the summary's table. The journal has the whole reason."""


class Terms(msgspec.Struct, frozen=True):
    """The settings that all operators of a run share."""

    model: str
    language: Language
    strategy: Strategy
    strategy_name: str
    goal: Goal
    feedback_tokens: int
    profiler: AttemptProfiler | None = None
    """Profiles right attempts for their feedback; None: feedback has no profile."""


class Run(Protocol):
    """The part of a run that operator tasks use."""

    @property
    def is_stopping(self) -> bool:
        """Whether no further request may be made."""
        ...

    def keep(self, attempt: Attempt) -> None:
        """Write the attempt to the journal, and report it to the observer."""
        ...

    def stop_asking(self, reason: str) -> None:
        """The budget is spent: make no further request."""
        ...

    def no_answer(self, error: NoAnswerError) -> None:
        """Count an attempt without a reply. Raises if the provider seems not to work at all."""
        ...

    def answered(self) -> None:
        """Count an answered request, which shows that the provider works."""
        ...


class OperatorTask:
    """Makes the attempts at one operator of a run."""

    def __init__(
        self, operator: str, cases: tuple[Case, ...], prompt: str, folder: OperatorFolder, attempts: Sequence[Attempt]
    ) -> None:
        self.operator, self._cases, self._prompt, self._folder = operator, cases, prompt, folder
        self._entry = entry_for(operator, folder.name)
        self._attempts = {attempt.number: attempt for attempt in attempts}
        self._exchanges = {each.number: each for each in read_exchanges(folder.transcript)}
        self._feedback: dict[int, str] = {}
        self._running: dict[int, asyncio.Task[None]] = {}

    async def complete(self, run: Run, terms: Terms, asker: Asker, judge: KernelJudge) -> None:
        """Make attempts until the strategy wants no more. Judges replies first that an earlier part of the run left."""
        self._run, self._terms, self._asker, self._judge = run, terms, asker, judge
        await asyncio.to_thread(self._folder.path.mkdir, exist_ok=True)
        try:
            for number, exchange in sorted(self._exchanges.items()):
                if number not in self._attempts and number <= terms.goal.max_attempts:
                    self._start(Ask(number, exchange.parents))
            while self._start_next() or self._running:
                done, _ = await asyncio.wait(self._running.values(), return_when=asyncio.FIRST_COMPLETED)
                self._running = {number: task for number, task in self._running.items() if task not in done}
                for task in done:
                    task.result()
        finally:
            for task in self._running.values():
                task.cancel()
            await asyncio.gather(*self._running.values(), return_exceptions=True)

    def _start_next(self) -> bool:
        """Start the attempts that the strategy wants now. Returns whether any attempt is running."""
        if not self._run.is_stopping:
            attempts = tuple(self._attempts.values())
            for ask in self._terms.strategy.next_asks(attempts, self._running.keys(), self._terms.goal):
                self._start(ask)
        return bool(self._running)

    def _start(self, ask: Ask) -> None:
        self._running[ask.number] = asyncio.create_task(self._attempt(ask))

    # ---- one attempt

    async def _attempt(self, ask: Ask) -> None:
        try:
            exchange = self._exchanges.get(ask.number) or await self._ask(ask)
        except BudgetSpentError as error:
            self._run.stop_asking(str(error))
            return
        except NoAnswerError as error:
            failure = ProviderFailed(error.failure.reason, str(error))
            await self._keep(self._attempt_record(ask, failure, requests=error.requests, asking_seconds=error.seconds))
            self._run.no_answer(error)
            return
        self._run.answered()
        began = time.monotonic()
        outcome = await self._outcome(exchange)
        judging_seconds = 0.0 if isinstance(outcome, NoCode) else time.monotonic() - began
        has_file = not isinstance(outcome, NoCode)
        attempt = self._attempt_record(
            Ask(exchange.number, exchange.parents),
            outcome,
            file=self._folder.within_run(self._folder.kernel(ask.number)) if has_file else None,
            usage=exchange.usage,
            requests=exchange.requests,
            asking_seconds=exchange.asking_seconds,
            judging_seconds=judging_seconds,
        )
        await self._keep(attempt)

    async def _ask(self, ask: Ask) -> Exchange:
        messages = await asyncio.to_thread(self._messages, ask)
        answer = await self._asker.ask(ModelRequest(self.operator, ask.number, messages))
        exchange = Exchange(
            operator=self.operator,
            number=ask.number,
            parents=ask.parents,
            model=self._terms.model,
            messages=messages,
            reply=answer.reply.text,
            stop_reason=answer.reply.stop_reason,
            usage=answer.reply.usage,
            requests=answer.requests,
            asking_seconds=answer.seconds,
            replied_unix_ns=time.time_ns(),
        )
        await asyncio.to_thread(append_exchange, self._folder.transcript, exchange)
        self._exchanges[ask.number] = exchange
        return exchange

    async def _outcome(self, exchange: Exchange) -> Outcome:
        found = await asyncio.to_thread(code_in, exchange.reply, self._entry)
        if found.code is None:
            return NoCode(found.problem + _length_note(exchange))
        return await self._judge.judged(
            self.operator, self._cases, self._folder, exchange.number, self._entry, found.code
        )

    def _attempt_record(self, ask: Ask, outcome: Outcome, **more: object) -> Attempt:
        return msgspec.structs.replace(
            Attempt(
                operator=self.operator,
                folder=self._folder.name,
                number=ask.number,
                parents=ask.parents,
                outcome=outcome,
                finished_unix_ns=time.time_ns(),
            ),
            **more,
        )

    async def _keep(self, attempt: Attempt) -> None:
        self._attempts[attempt.number] = attempt
        self._run.keep(attempt)
        await asyncio.to_thread(self._write_readable_files)

    def _write_readable_files(self) -> None:
        attempts = tuple(self._attempts.values())
        write_best(self._folder, attempts)
        outcomes = {attempt.number: outcome_text(attempt) for attempt in attempts}
        write_page(self._folder.path / PAGE, self.operator, tuple(self._exchanges.values()), outcomes)

    # ---- what the model is shown

    def _messages(self, ask: Ask) -> tuple[Message, ...]:
        earlier = [self._shown(number) for number in ask.parents]
        make = evolving if self._terms.strategy_name == "evolve" else refining
        return make(self._prompt, earlier, self._terms.language)

    def _shown(self, number: int) -> Shown:
        exchange, attempt = self._exchanges[number], self._attempts[number]
        code = code_in(exchange.reply, self._entry).code
        if number not in self._feedback:
            self._feedback[number] = self._feedback_on(attempt, code or "")
        return Shown(number, code, exchange.reply, self._feedback[number], attempt.right)

    def _feedback_on(self, attempt: Attempt, code: str) -> str:
        match attempt.outcome:
            case Judged() as judged:
                name = self._folder.kernel(attempt.number).name
                profile = self._profile(attempt)
                info = feedback_from(self._folder.run, judged, name, code, self._entry, profile)
                return info.to_text(self._terms.feedback_tokens)
            case NoCode(problem=problem):
                return problem
            case ProviderFailed() | NotJudged():
                return "This attempt was not judged."

    def _profile(self, attempt: Attempt) -> Profile | None:
        profiler = self._terms.profiler
        return None if profiler is None or not attempt.right else profiler.profile(self._folder, attempt, self._entry)


def _length_note(exchange: Exchange) -> str:
    return " The reply reached the limit of its length." if exchange.stop_reason in _LENGTH_STOP_REASONS else ""


def outcome_text(attempt: Attempt) -> str:
    """The outcome of an attempt, in a few words."""
    match attempt.outcome:
        case Judged(right=True, speedup=None):
            return "right"
        case Judged(right=True, speedup=speedup, speedup_low=low, speedup_high=high):
            return f"right, {speedup:.2f}x ({low:.2f} to {high:.2f})"
        case Judged(verdict=verdict, verdicts=verdicts):
            return f"{verdict}, {verdicts.get('agrees', 0)} of {sum(verdicts.values())} cases agree"
        case NoCode():
            return "no code"
        case ProviderFailed(reason=reason, message=message):
            return f"no reply ({reason}): {one_line(message, limit=_LONGEST_REASON_CHARACTERS)}"
        case NotJudged():
            return "not judged"
