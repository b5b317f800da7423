"""Judges the kernels in the replies of many rollouts at once; gives each a reward and feedback."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Mapping
from threading import Lock
from typing import Any

import msgspec

from torchstone.api import Evaluation, Judge, as_implementation
from torchstone.api.context_manager_base import ContextManagerBase
from torchstone.api.run_now import run_now
from torchstone.backends.accompanying_files import encodable
from torchstone.backends.python_source import definitions_in, language_of_modules
from torchstone.errors import (
    DeviceUnavailableError,
    InfrastructureError,
    IsolationUnavailableError,
    UsageError,
    unknown_name,
)
from torchstone.executors import Executor
from torchstone.feedback import feedback_of
from torchstone.gym.config import EvaluatorConfig, configured
from torchstone.gym.reward import RewardParts, facts_of, parts_of, reward_of_facts
from torchstone.gym.tasks import KernelTask, task_named, tasks_of
from torchstone.prompting import code_in, language_named
from torchstone.schema import Cheated, Implementation, SourceFile, SourceFiles, Unjudged, is_model, torchs_own

_PERMANENT_FAILURES = (IsolationUnavailableError, DeviceUnavailableError)
"""Failures of the machine that every later kernel would meet too. They are raised: otherwise training would go on
without rewards."""


class TurnResult(msgspec.Struct, frozen=True):
    """The result of one reply of a model: verdict, reward, feedback. Plain data, ready for JSON."""

    operator: str
    """Full overload name."""
    reward: float | None
    """None: the machine could not judge the kernel; leave the reply out of training. The first one gives a warning."""
    verdict: str
    """The worst verdict of a case; `no_code` for a reply without a kernel."""
    feedback: str
    """What the model may be told, also about a reply without a kernel."""
    parts: RewardParts = RewardParts(0.0, 0.0, 0.0)
    """The reward's parts before they are weighted, each from 0 to 1."""
    correct_share: float = 0.0
    """Cases that agree, of those that PyTorch itself can compute here."""
    speedup: float | None = None
    """Geometric mean over the timed cases of a right kernel; None if no time can be told."""
    speedup_low: float | None = None
    """Lower end of its 95 % interval: what is rewarded."""
    guards: tuple[str, ...] = ()
    """Guards that proved cheating."""
    added_imports: tuple[str, ...] = ()
    """Imports that the kernel lacked and that were added."""
    code: str | None = None
    """The kernel that was judged."""
    from_cache: bool = False
    """Whether the verdict was kept from an earlier judgement."""

    @property
    def right(self) -> bool:
        """Whether the kernel is right in every case."""
        return self.correct_share == 1 and self.verdict not in ("cheated", "unjudged")

    @property
    def judged(self) -> bool:
        return self.reward is not None

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


class Evaluator(ContextManagerBase):
    """One judge for all rollouts of a program: ``async with Evaluator(config) as evaluator: await evaluator.turn(…)``.

    Every kernel is judged in files and a process of its own. Identical kernels in flight are judged once. All methods
    may be called from many tasks and threads.
    """

    def __init__(
        self, config: EvaluatorConfig | None = None, *, executor: str | Executor | None = None, **fields: Any
    ) -> None:
        """``fields`` are fields of the configuration. ``executor`` may be an object instead of a name."""
        if isinstance(executor, str):
            fields["executor"] = executor
        self.config = configured(config, fields)
        self._executor = None if isinstance(executor, str) else executor
        self._lock, self._tasks_lock = Lock(), Lock()
        self._tasks: dict[str, KernelTask] | None = None
        self._judge: Judge | None = None
        self._closed = False
        self._has_warned = False

    @property
    def is_modal(self) -> bool:
        """Whether kernels are judged at Modal and not on this machine."""
        return self.config.is_modal

    @property
    def judge(self) -> Judge:
        """The judge, which is created at the first use."""
        with self._lock:
            if self._closed:
                raise UsageError("this Evaluator is closed. Make another.")
            if self._judge is None:
                given = {} if self._executor is None else {"executor": self._executor}
                self._judge = Judge(**{**self.config.process_settings(), **given})
            return self._judge

    @property
    def tasks(self) -> tuple[KernelTask, ...]:
        """Every task of the configuration. They are built once, because some suites run code to list their cases."""
        return tuple(self._by_operator().values())

    def _by_operator(self) -> dict[str, KernelTask]:
        with self._tasks_lock:
            if self._tasks is None:
                self._tasks = {task.operator: task for task in tasks_of(self.config, self.judge.site)}
            return self._tasks

    def task(self, operator: str) -> KernelTask:
        """The task of an operator, by overload or base name."""
        tasks = self._by_operator()
        found = tasks.get(operator) or task_named(operator, tasks.values())
        if found is None:
            raise unknown_name("operator", operator, tasks)
        return found

    # ---- a kernel

    async def evaluate(self, code: str, operator: str) -> Evaluation:
        """The evaluation of a kernel's source text on the cases of its task. Cancelling withdraws it."""
        task = await asyncio.to_thread(self.task, operator)
        return await self.judge.aevaluate(self._as_kernel(code, task), task.operator, **self._judge_arguments(task))

    def _as_kernel(self, code: str, task: KernelTask) -> Implementation:
        """The source text as a kernel. The language is that of the text if it is evident, else the configured one."""
        text = f"{encodable(code)}\n"  # one line alone could be taken for the path of a file
        if is_model(task.operator):  # in every language a solution is a Python file
            solution = SourceFiles((SourceFile("kernel.py", text),), task.entry, "source text")
            return Implementation("api", task.operator, solution, language_of_modules(solution.files))
        found = as_implementation(text, task.operator, task.entry)
        wanted_language = language_named(self.config.language_on(self._device_type))
        if (
            wanted_language.name not in ("cuda", "cpp")
            or found.language in ("cuda", "cpp")
            or definitions_in(text) is not None
        ):
            return found
        source = SourceFiles((SourceFile(f"kernel{wanted_language.suffix}", text),), task.entry, "source text")
        return msgspec.structs.replace(found, origin=source, language=wanted_language.name)

    @property
    def _device_type(self) -> str:
        return self.judge.device.partition(":")[0]

    async def evaluate_reference(self, operator: str) -> Evaluation:
        """PyTorch's own implementation on the cases of the task, checked only: whether the task can be solved here."""
        task = await asyncio.to_thread(self.task, operator)
        own = torchs_own(task.cases[0])
        settings = {**self._judge_arguments(task), "purpose": "check", "require_authored": False}
        return await self.judge.aevaluate(own, task.operator, **settings)

    async def result_of(self, code: str, operator: str) -> TurnResult:
        """Judge a kernel's source text. A failure of the machine that may pass gives a result without a reward."""
        task, code = await asyncio.to_thread(self.task, operator), encodable(code)
        try:
            evaluation = await self.evaluate(code, task.operator)
        except _PERMANENT_FAILURES:
            raise
        except InfrastructureError as error:
            self._warn_once(f"a kernel was not judged, and its reward is None: {error}")
            return TurnResult(task.operator, None, "unjudged", f"The kernel was not judged: {error}", code=code)
        result = await asyncio.to_thread(self._result, task, code, evaluation)
        if result.reward is None:
            reasons = [each.verdict.reason for each in evaluation.records if isinstance(each.verdict, Unjudged)]
            why = reasons[0] if reasons else "no case gave a verdict on the kernel."
            self._warn_once(f"a kernel of {task.operator} is {result.verdict}, and its reward is None: {why}")
        return result

    def _warn_once(self, message: str) -> None:
        with self._lock:
            is_first, self._has_warned = not self._has_warned, True
        if is_first:
            warnings.warn(f"{message.rstrip('.')}. Later ones give no warning.", RuntimeWarning, stacklevel=2)

    def _judge_arguments(self, task: KernelTask) -> dict[str, Any]:
        settings: Mapping[str, Any] = self.config.judge_settings()
        purpose = "evaluate" if self.config.measured else "check"
        return {**settings, "purpose": purpose, "cases": task.cases}

    # ---- a reply

    async def turn(self, completion: str, operator: str) -> TurnResult:
        """Judge a reply of a model: the last code block in it that defines the task's entry point."""
        task = await asyncio.to_thread(self.task, operator)
        found = code_in(encodable(completion), task.entry)
        if found.code is None:
            return TurnResult(task.operator, self.config.reward.no_code, "no_code", found.problem)
        return await self.result_of(found.code, task.operator)

    def turn_now(self, completion: str, operator: str) -> TurnResult:
        """The same for programs without an event loop."""
        return self.turns_now([(completion, operator)])[0]

    def turns_now(self, replies: list[tuple[str, str]]) -> list[TurnResult]:
        """Many replies with their operators at once; the results are in the same order."""

        async def together() -> list[TurnResult]:
            return await asyncio.gather(*(self.turn(reply, operator) for reply, operator in replies))

        results: list[TurnResult] = run_now(together())
        return results

    def _result(self, task: KernelTask, code: str, evaluation: Evaluation) -> TurnResult:
        facts, settings = facts_of(evaluation), self.config.reward
        records = evaluation.records
        guards = dict.fromkeys(each.verdict.guard for each in records if isinstance(each.verdict, Cheated))
        origin = self._as_kernel(code, task).origin
        source = origin if isinstance(origin, SourceFiles) else None
        return TurnResult(
            operator=task.operator,
            reward=reward_of_facts(facts, settings),
            verdict=evaluation.verdict,
            feedback=feedback_of(records, source=source).to_text(self.config.feedback_tokens),
            parts=parts_of(facts, settings),
            correct_share=facts.correct_share,
            speedup=evaluation.speedup,
            speedup_low=facts.speedup_low,
            guards=tuple(guards),
            added_imports=tuple(dict.fromkeys(line for record in records for line in record.added_imports)),
            code=code,
            from_cache=evaluation.from_cache,
        )

    # ---- the end

    def close(self) -> None:
        """End every process. What waits is cancelled."""
        with self._lock:
            self._closed = True
            judge, self._judge = self._judge, None
        if judge is not None:
            judge.close()
