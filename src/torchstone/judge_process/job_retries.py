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
from torchstone.judge_process.reference_timed_without_candidate import CameTooSoonError
from torchstone.judge_process.resources import JobOutcome, JudgeResources
from torchstone.judge_process.sandboxed_reference_models import ModelLostError
from torchstone.judge_process.staged_job import StagedJob

_LOST_WORKERS = 5
"""A worker that was killed from outside is our loss; one that dies so every time is the candidate's doing."""


def judge(
    job: schema.Job, room: JudgeResources, device_label: str, manifest_key: str, isolation: schema.IsolationLevel
) -> schema.Record:
    """The record of a job; repeats it when a worker was lost through no fault of the candidate."""
    attempts = 0
    randomness = RepeatableRandomness()
    room.builds.begin_job()
    alone, waited = ExitStack(), room.waited_seconds
    while attempts < _LOST_WORKERS:
        attempts += 1
        randomness.begin_again()
        trial = StagedJob(job, room, randomness, waited)
        is_over = False
        lack: schema.Crashed | Exception | None = None
        try:
            verdict = trial.conduct()
            lack = verdict if isinstance(verdict, schema.Crashed) and verdict.kind == "memory" else None
            is_over = lack is None
        except MoreMemoryNeededError:
            attempts -= 1  # no candidate was there yet; each time it needs more, and all of the device is enough
        except CameTooSoonError:
            pass  # with a fresh worker: the next time it was not there before
        except ModelLostError as lost:
            verdict = schema.Unjudged(str(lost))
            room.dismiss_candidate()  # it may have taken the model's time or memory
        except (ReferenceLostError, DeviceBusyError, DeviceLostError) as lost:
            verdict = schema.Unjudged(str(lost))
        except WorkerLostError:
            # If it happens every time, something that the candidate does makes the system kill it.
            verdict = schema.Crashed(
                trial.session.clock.stage,
                "signal",
                "killed each time it ran",
                signal="SIGKILL",
                replay=trial.session.crash_replay(),
            )
            if trial.session.clock.stage == "measure" or trial.session.outcome.measurement is not None:
                attempts = max(attempts, _LOST_WORKERS - 2)  # dying until the clock is kind must not pay
        except TorchstoneError as error:
            if not trial.session.has_worker and not room.has_had_candidates:
                raise  # this machine cannot do what the request needs: no other job could run either
            verdict, is_over = _fault(error, room), True  # it could, until a candidate had been loaded
        except Exception as error:  # noqa: BLE001 - a fault of ours, perhaps provoked: it must not take other jobs along
            verdict, is_over = _fault(error, room), not is_out_of_memory(error)
            if not is_over:
                lack = torch.OutOfMemoryError(str(error))  # without the frames of the other one, which hold tensors
        outcome, stage = trial.session.outcome, trial.session.clock.stage
        del trial  # and with it the tensors that it holds: who waits for memory must have none
        if lack is not None and not _have_it_alone(room, alone):
            verdict, is_over = _for_lack(lack, stage, room), True
        if is_over:
            break
    alone.close()
    room.shortage.end()
    room.memory.release()
    room.free_memory()  # what one job needed must not be missing to the next
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
        attempts=attempts,
        finished_unix_ns=time.time_ns(),
        argument_names=_argument_names(job.case),
        shapes=job.shapes,
        added_imports=added_imports(job.implementation.origin),
    )


def _isolation(demanded: schema.IsolationLevel, outcome: JobOutcome) -> schema.Isolation:
    return schema.Isolation(demanded, outcome.layers, outcome.held, outcome.results)


def _argument_names(case: schema.Case) -> tuple[str, ...]:
    try:
        return operators.argument_names(case.operator)[: len(case.args)]
    except UsageError:
        return ()  # torch lacks the operator: the verdict says so


def _have_it_alone(room: JudgeResources, alone: ExitStack) -> bool:
    """Try again with the device to itself: a candidate is not blamed for what other judges use.

    Nor for what this judge keeps for later. False: it had the device alone already.
    """
    if not room.shortage.tells or room.lane.is_exclusive:
        return False
    room.memory.hold_everything()  # before the lane: who holds that must not wait for memory
    alone.enter_context(room.lane.exclusive())
    room.watch_memory()
    return True


def _for_lack(lack: schema.Crashed | Exception, stage: schema.Stage, room: JudgeResources) -> schema.Verdict:
    """Of a job that lacked memory, or whose candidate did, although it had the device to itself."""
    return room.shortage.instead_of(lack) if isinstance(lack, schema.Crashed) else room.shortage.verdict(stage, lack)


def _fault(error: Exception, room: JudgeResources) -> schema.Verdict:
    """A job on which the judge failed is unjudged. If its device is spoilt, the judge must end and start again."""
    traceback.print_exception(error)  # into the judge's own log
    room.dismiss_candidate()
    room.dismiss_own_workers()
    if room.device.type == "cuda":
        torch.cuda.synchronize(room.device)
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{place.filename.rsplit('/', 1)[-1]}:{place.lineno}"
    return schema.Unjudged(f"the judge stumbled ({type(error).__name__} at {where}): {error}"[:500])
