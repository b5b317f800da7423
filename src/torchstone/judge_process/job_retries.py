"""Makes the record of a job: judges it again, within a limit, if a worker was lost or memory was lacking."""

from __future__ import annotations

import time
import traceback
from contextlib import ExitStack

import torch

from torchstone import operators, schema
from torchstone.backends.missing_imports import added_imports
from torchstone.calls.torch_errors import is_out_of_memory
from torchstone.errors import TorchstoneError, UsageError
from torchstone.judge_process.candidate_failures import DeviceLostError, WorkerLostError
from torchstone.judge_process.measured_parties import ReferenceLostError
from torchstone.judge_process.measurement_guards import DeviceBusyError
from torchstone.judge_process.memory_reservation import MoreMemoryNeededError
from torchstone.judge_process.randomness_across_retries import RepeatableRandomness
from torchstone.judge_process.reference_timed_without_candidate import LoadedTooEarlyError
from torchstone.judge_process.resources import JobOutcome, JudgeResources
from torchstone.judge_process.sandboxed_reference_models import ModelLostError
from torchstone.judge_process.staged_job import StagedJob

_MOST_ATTEMPTS = 5
"""Most attempts at a job. A candidate whose worker is killed from outside at every attempt has crashed."""


def judge(
    job: schema.Job, resources: JudgeResources, device_label: str, manifest_key: str, isolation: schema.IsolationLevel
) -> schema.Record:
    """The record of a job; repeats the job if a worker or memory was lacking through no fault of the candidate."""
    resources.builds.begin_job()
    attempts = _Attempts(job, resources)
    attempts.make()
    resources.shortage.end()
    resources.memory.release()
    resources.free_memory()  # so that the next job has the memory that this one used
    outcome, verdict = attempts.outcome, attempts.verdict
    return schema.Record(
        job_key=job.key,
        case=job.case,
        implementation=job.implementation.reference,
        verdict=verdict,
        manifest_key=manifest_key,
        device=device_label,
        isolation=_isolation(isolation, outcome),
        measurement=outcome.measurement if isinstance(verdict, schema.Agrees) else None,
        attribution=outcome.attribution,
        log_tail=outcome.log_tail,
        stage_seconds=outcome.stage_seconds,
        attempts=attempts.count,
        finished_unix_ns=time.time_ns(),
        argument_names=_argument_names(job.case),
        shapes=job.shapes,
        added_imports=added_imports(job.implementation.origin),
    )


class _Attempts:
    """The attempts at one job, until the verdict of one of them is final."""

    def __init__(self, job: schema.Job, resources: JudgeResources) -> None:
        self._job, self._resources = job, resources
        self._randomness = RepeatableRandomness()
        self._waited_before_seconds = resources.waited_seconds
        self._device_alone = ExitStack()
        self._lack: schema.Crashed | Exception | None = None
        """How the last attempt lacked memory; None if it did not."""
        self.count = 0
        """Attempts so far that count: those that only had to reserve more memory do not."""
        self.verdict: schema.Verdict = schema.Unjudged("no attempt reached a verdict")
        """The verdict of the last attempt that reached one."""
        self.outcome: JobOutcome
        """What the last attempt found out besides its verdict."""

    def make(self) -> None:
        """Make attempts until a verdict is final, at most `_MOST_ATTEMPTS` that count."""
        with self._device_alone:
            is_final = False
            while not is_final and self.count < _MOST_ATTEMPTS:
                self.count += 1
                is_final = self._attempt()

    def _attempt(self) -> bool:
        """Make one attempt. Returns whether its verdict is final."""
        self._randomness.begin_again()
        self._lack = None
        trial = StagedJob(self._job, self._resources, self._randomness, self._waited_before_seconds)
        is_final = self._conduct(trial)
        self.outcome, stage = trial.session.outcome, trial.session.clock.stage
        del trial  # and its tensors: a judge that waits for memory must hold none
        if self._lack is None:
            return is_final
        if _take_device_alone(self._resources, self._device_alone):
            self.count = min(self.count, _MOST_ATTEMPTS - 1)  # at most once: then the device is taken already
            return False
        self.verdict = _verdict_for_lack(self._lack, stage, self._resources)
        return True

    def _conduct(self, trial: StagedJob) -> bool:
        """Take the job through its stages once. Returns whether the verdict is final, if no memory was lacking."""
        resources = self._resources
        try:
            self.verdict = trial.conduct()
            if isinstance(self.verdict, schema.Crashed) and self.verdict.kind == "memory":
                self._lack = self.verdict
            return True
        except MoreMemoryNeededError:
            self.count -= 1  # no candidate was loaded; each time it reserves more, at most all of the device
        except LoadedTooEarlyError:
            pass  # the next attempt times the reference before it loads the candidate
        except ModelLostError as lost:
            self.verdict = schema.Unjudged(str(lost))
            resources.dismiss_candidate()  # it may have used the time or memory that the model needs
        except (ReferenceLostError, DeviceBusyError, DeviceLostError) as lost:
            self.verdict, self._lack = schema.Unjudged(str(lost)), _memory_shortage_in(lost)
        except WorkerLostError:
            self._note_killed_worker(trial)
        except TorchstoneError as error:
            if not trial.session.has_worker and not resources.has_had_candidates:
                raise  # this machine cannot do what the request needs: no other job can run either
            # The machine could do it until a candidate was loaded.
            self.verdict, self._lack = _verdict_for_fault(error, resources), _memory_shortage_in(error)
            return True
        except Exception as error:  # noqa: BLE001 - a fault of the judge, perhaps provoked: other jobs go on
            self.verdict = _verdict_for_fault(error, resources)
            if is_out_of_memory(error):
                self._lack = torch.OutOfMemoryError(str(error))  # a new error: the frames of the old one hold tensors
            return True
        return False

    def _note_killed_worker(self, trial: StagedJob) -> None:
        """The candidate's worker was killed from outside. If that happens every time, the candidate causes it."""
        session = trial.session
        message = "the kernel's process was killed each time it ran"
        replay = session.crash_replay()
        self.verdict = schema.Crashed(session.clock.stage, "signal", message, signal="SIGKILL", replay=replay)
        if session.clock.stage == "measure" or session.outcome.measurement is not None:
            self.count = max(self.count, _MOST_ATTEMPTS - 2)  # a candidate must not die until its times are good


def _isolation(demanded: schema.IsolationLevel, outcome: JobOutcome) -> schema.Isolation:
    return schema.Isolation(demanded, outcome.layers, outcome.held, outcome.results)


def _argument_names(case: schema.Case) -> tuple[str, ...]:
    try:
        return operators.argument_names(case.operator)[: len(case.args)]
    except UsageError:
        return ()  # torch lacks the operator: the verdict says so


def _memory_shortage_in(error: Exception) -> torch.OutOfMemoryError | None:
    """The lack of device memory that an error reports: a worker could not open the device. None: another error."""
    text = str(error)
    return torch.OutOfMemoryError(text) if is_out_of_memory(RuntimeError(text)) else None


def _take_device_alone(resources: JudgeResources, alone: ExitStack) -> bool:
    """Take the device alone for another attempt, without memory of other judges or of earlier jobs.

    Returns False if this attempt had the device alone, or if its memory cannot be watched (CPU).
    """
    if not resources.shortage.can_watch or resources.lane.is_exclusive:
        return False
    resources.memory.hold_everything()  # before the lane: a judge that holds it must not wait for memory
    alone.enter_context(resources.lane.exclusive())
    resources.watch_memory()
    return True


def _verdict_for_lack(
    lack: schema.Crashed | Exception, stage: schema.Stage, resources: JudgeResources
) -> schema.Verdict:
    """The verdict for a job that lacked memory, or whose candidate did, although it had the device to itself."""
    if isinstance(lack, schema.Crashed):
        return resources.shortage.verdict_for_crash(lack)
    return resources.shortage.verdict(stage, lack)


def _verdict_for_fault(error: Exception, resources: JudgeResources) -> schema.Verdict:
    """The verdict for a job on which the judge failed. Raises if the device no longer works: the judge must restart."""
    traceback.print_exception(error)  # into the judge's own log
    resources.dismiss_candidate()
    resources.dismiss_own_workers()
    if resources.device.type == "cuda":
        torch.cuda.synchronize(resources.device)
    frame = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}"
    return schema.Unjudged(f"the judge failed on this job ({type(error).__name__} at {where}): {error}"[:500])
