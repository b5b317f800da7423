"""The service behind the MCP server: lists operators and cases, judges and profiles kernels, explains results."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from torchstone import registry
from torchstone.api import Judge, as_implementation
from torchstone.api.context_manager_base import ContextManagerBase
from torchstone.api.jobs_for_kernels import Purpose
from torchstone.errors import UsageError
from torchstone.feedback import feedback_of, profiled_work
from torchstone.profiling import ProfileRequest, profile
from torchstone.profiling.kernel_and_case import of_one_overload
from torchstone.runs import RunRequest, read_run
from torchstone.runs.choose_cases_and_kernels import choose_cases, query_of
from torchstone.runs.devices import resolve_device
from torchstone.runs.earlier import named_run
from torchstone.schema import Case, Deadlines, Effort, Record, SourceFiles, forward_operator
from torchstone.serving.answers import (
    CaseAnswer,
    Explanation,
    GivenKernel,
    OperatorAnswer,
    ProfileAnswer,
)
from torchstone.serving.jobs import Jobs, JudgingJob, KernelOnCases
from torchstone.suites import select_cases

IDLE_SECONDS = 600.0
"""How long judge processes stay started without work: an agent thinks between two calls."""
MOST_KERNELS = 64
"""Most kernels of one job."""
LIMIT_SECONDS = 60.0
"""Default limit for each of: importing a kernel, its first call, the check of a case."""
_FEWEST_KEY_CHARACTERS = 4
"""Fewest characters of a record's key that a client must give."""
_MOST_CANDIDATES = 8
"""Most records that the error lists if the given characters fit several."""


class ServiceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options with which a server is started. Clients cannot change them."""

    suite: str = "smoke"
    """The suite if a client names none."""
    device: str = "auto"
    isolation: str = "best"
    threads: int = 1
    judges: int = 1
    feedback_tokens: int | None = 1500
    """Most tokens of an answer's text, estimated; None: no limit."""
    allow_unsandboxed_profilers: bool = False
    profile_dir: Path = Path("torchstone_profiles")


class KernelService(ContextManagerBase):
    """Every request of a client is a method. They may be called from any thread, and raise `TorchstoneError`."""

    def __init__(self, options: ServiceOptions) -> None:
        registry.suites.factory(options.suite)
        self.options = options
        self._device = resolve_device(options.device)
        self._judge = Judge(
            idle_seconds=IDLE_SECONDS,
            suite=options.suite,
            device=self._device,
            isolation=options.isolation,
            threads=options.threads,
            judges=options.judges,
        )
        self._jobs = Jobs()

    # ---- what there is

    def operators(self, suite: str = "", contains: str = "") -> tuple[OperatorAnswer, ...]:
        """The operators of a suite, with their numbers of cases."""
        name = suite or self.options.suite
        query = query_of(RunRequest(suite=name), self._device)
        cases = select_cases(name, registry.suites.factory(name)(), query)
        total, timed = Counter(each.operator for each in cases), Counter(each.operator for each in cases if each.timed)
        return tuple(OperatorAnswer(each, total[each], timed[each]) for each in sorted(total) if contains in each)

    def cases(self, operator: str, suite: str = "", dtypes: Sequence[str] = ()) -> tuple[CaseAnswer, ...]:
        """The cases on which a kernel of this operator is judged. Hidden variants are drawn in addition."""
        found = self._cases(operator, suite, dtypes)
        return tuple(CaseAnswer(each.key, each.operator, each.label, each.timed, each.tags) for each in found)

    def _cases(self, operator: str, suite: str, dtypes: Sequence[str]) -> tuple[Case, ...]:
        name = registry.suites.canonical(suite or self.options.suite)
        request = RunRequest(suite=name, operators=(operator,), dtypes=tuple(dtypes) or None)
        return of_one_overload(choose_cases(request, self._device, registry.suites.factory(name)()), operator)

    # ---- judging

    def start(
        self,
        kernels: Sequence[GivenKernel],
        purpose: Purpose,
        *,
        suite: str = "",
        dtypes: Sequence[str] = (),
        effort: Effort = "normal",
        limit_seconds: float = LIMIT_SECONDS,
    ) -> JudgingJob:
        """Begin to judge these kernels. Returns at once."""
        if not 0 < len(kernels) <= MOST_KERNELS:
            raise UsageError(f"{len(kernels)} kernels are given; a job takes 1 to {MOST_KERNELS}.")
        chosen = [self._on_cases(each, purpose, suite, dtypes) for each in kernels]
        deadlines = Deadlines(load_seconds=limit_seconds, compile_seconds=limit_seconds, check_seconds=limit_seconds)
        job = JudgingJob(chosen, purpose, {"effort": effort, "deadlines": deadlines})
        self._jobs.add(job)
        job.start(self._judge)
        return job

    def _on_cases(self, given: GivenKernel, purpose: Purpose, suite: str, dtypes: Sequence[str]) -> KernelOnCases:
        cases = self._cases(given.operator, suite, dtypes)
        if purpose == "measure":
            cases = tuple(case for case in cases if case.timed)
        if not cases:
            raise UsageError(f"no case of {given.operator} is timed in this suite. Use check_kernel, or another suite.")
        if bool(given.source) == bool(given.path):
            raise UsageError("give either the kernel's source or its path, not both and not neither.")
        kernel = Path(given.path) if given.path else given.source
        operator = forward_operator(cases[0].operator)
        # A text is never a path here, even if it looks like one.
        text = kernel if isinstance(kernel, Path) else kernel.rstrip("\n") + "\n"
        return KernelOnCases(as_implementation(text, operator, given.entry or None), cases, given.path or "source text")

    def job(self, key: str) -> JudgingJob:
        """The job of this key. Raises UsageError if this server has none."""
        return self._jobs.named(key)

    def jobs(self) -> tuple[JudgingJob, ...]:
        """The jobs of this server, the newest first."""
        return tuple(self._jobs.all())

    # ---- one record

    def explain(self, record: str, run_folder: str = "") -> Explanation:
        """The feedback on one case, of a job of this server or of a run folder. ``record``: a key, or its beginning."""
        found, source = self._record(record, run_folder)
        feedback = feedback_of((found,), source=source)
        return Explanation(found.job_key, found.case.operator, found.case.label, feedback)

    def _record(self, key: str, run_folder: str) -> tuple[Record, SourceFiles | None]:
        if len(key) < _FEWEST_KEY_CHARACTERS:
            raise UsageError(
                f"'{key}' is too short to name a record. Give {_FEWEST_KEY_CHARACTERS} characters or more."
            )
        known: list[tuple[Record, SourceFiles | None]]
        if run_folder:
            known = [(each, None) for each in read_run(named_run(Path(run_folder))).records]
        else:
            known = [pair for job in self._jobs.all() for pair in job.records]
        found: dict[str, tuple[Record, SourceFiles | None]] = {}
        for record, source in known:
            if record.job_key.startswith(key):
                found.setdefault(record.job_key, (record, source))  # the newest, if a kernel was judged twice
        if len(found) == 1 or key in found:
            return found.get(key) or next(iter(found.values()))
        if found:
            raise UsageError(_ambiguous(key, [record for record, _ in found.values()]))
        where = f"in {run_folder}" if run_folder else "of a job of this server"
        raise UsageError(f"there is no record '{key}' {where}. Answers of check_kernel and job_progress name records.")

    # ---- profiling

    def profile(self, given: GivenKernel, *, case: str = "", profiler: str = "torch", calls: int = 5) -> ProfileAnswer:
        """Run a kernel on one case under a profiler. ``case`` empty: the largest timed case."""
        (chosen,) = [self._on_cases(given, "evaluate", "", ())]
        with tempfile.TemporaryDirectory(prefix="torchstone-") as folder:
            made = profile(self._profile_request(given, chosen, Path(folder), case, profiler, calls), lambda _: None)
        (result,) = made.profile.results
        return ProfileAnswer(
            operator=made.profile.case.operator,
            arguments=made.profile.case.label,
            profiler=result.profiler,
            status=result.status,
            sandboxed=result.sandboxed,
            folder=str(made.folder.absolute()),
            work=profiled_work(made.profile),
            notice=result.notice,
        )

    def _profile_request(
        self, given: GivenKernel, chosen: KernelOnCases, folder: Path, case: str, profiler: str, calls: int
    ) -> ProfileRequest:
        path = Path(given.path)
        if given.source:
            path = folder / "kernel.py"
            path.write_text(given.source, encoding="utf-8")
        return ProfileRequest(
            kernel=str(path),
            profilers=(profiler,),
            suite=self.options.suite,
            operator=chosen.cases[0].operator,
            entry=given.entry or None,
            case=case or None,
            device=self._device,
            calls=calls,
            threads=self.options.threads,
            isolation=self.options.isolation,  # type: ignore[arg-type]  # checked by the judge
            output_dir=self.options.profile_dir,
            only_sandboxed=not self.options.allow_unsandboxed_profilers,
        )

    # ---- the end

    def close(self) -> None:
        """End every process."""
        for job in self._jobs.all():
            job.cancel()
        self._judge.close()


def _ambiguous(key: str, candidates: Sequence[Record]) -> str:
    listed = [f"{each.job_key} ({each.case.operator}, {each.case.label})" for each in candidates[:_MOST_CANDIDATES]]
    more = f" and {len(candidates) - _MOST_CANDIDATES} more" if len(candidates) > _MOST_CANDIDATES else ""
    return f"'{key}' fits {len(candidates)} records: {', '.join(listed)}{more}. Give more characters of the key."
